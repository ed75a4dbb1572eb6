"""Delivering and acking by our queue, beside a plain subscription and queues of other systems."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Final

from .cases import Case, Choice, Kind
from .over_nsq import NSQ
from .over_stan import STAN
from .own_programs import module
from .programs import fill, run_program
from .serving import RunningServer, processes_in, running
from .streams import create_stream, delete_stream
from .summary import CaseSummary, Run, summarize

SUBSCRIPTION: Final = "subscription"
CLIENTS: Final = (SUBSCRIPTION, "queue, async for", "queue, run")
OTHERS: Final = {"stan.go": STAN, "go-nsq": NSQ, "pynsq": NSQ}
"""Clients of other systems that ack what they consume, and where they do."""
LEASED: Final = {"leased to 1 member": 1, "leased to 4 members": 4}
"""How many members are leased all that another one owns, where the server has NATS."""
_LEASED_PART: Final = 20
"""One message in so many is read by those."""
_MESSAGES: Final = 200_000
_QUICK_MESSAGES: Final = 1_000
_TIMEOUT: Final = 90.0
_STREAM: Final = "bench"


def measure_over_queue(
    server: str, choice: Choice, rounds: int, tell: Callable[[str], None]
) -> Iterator[CaseSummary]:
    """Read one stream again and again; the ways take turns, each queue with a group of its own.

    Args:
        server: `real`, `embedded`, or the path of a binary.
        choice: How many messages.
        rounds: How often each way has its turn.
        tell: Is told how far it has come.

    Raises:
        EnvironmentUnavailable: A client of another system cannot be had here.
        ServerUnavailable: It cannot be built.
        ServerDidNotStart: It was not ready in time.
        FillFailed: The stream could not be filled.
    """
    usual = _QUICK_MESSAGES if choice.quick else _MESSAGES
    case = Case(Kind.CONSUME, choice.messages or usual)
    with running(server, 1) as there:
        create_stream(there.addresses, _STREAM, 1, 1)
        ours = module("benchmarks.peers.ours")
        fill(lambda words: [*ours, *words], case, there.addresses[0], _STREAM)
        yield _measure(case, there, rounds, tell)
        if there.nats_url is not None:  # real servers beside real servers
            yield _measure_others(replace(case, note="beside other systems"), there, rounds, tell)
        delete_stream(there.addresses, _STREAM)


def _measure(
    case: Case, there: RunningServer, rounds: int, tell: Callable[[str], None]
) -> CaseSummary:
    by_queue = module("benchmarks.peers.ours_queue")
    words = case.words(there.addresses[0], _STREAM, case.messages)
    ways = (module("benchmarks.peers.ours"), by_queue, (*by_queue, "--run"))
    programs = {name: (*way, *words) for name, way in zip(CLIENTS, ways, strict=True)}
    if there.nats_url is not None:
        words = case.words(there.addresses[0], _STREAM, case.messages // _LEASED_PART)
        for name, members in LEASED.items():
            flags = "--nats", there.nats_url, "--members", str(members)
            programs[name] = (*by_queue, *flags, *words)
    runs: dict[str, list[Run]] = {name: [] for name in programs}
    for number in range(1, rounds + 1):
        for name, program in programs.items():
            tell(f"{case.title}: round {number} of {rounds}, {name}")
            runs[name].append(run_program(program, there.pids, 0, _TIMEOUT))
    return summarize(case, runs, SUBSCRIPTION)


def _measure_others(
    case: Case, there: RunningServer, rounds: int, tell: Callable[[str], None]
) -> CaseSummary:
    for client, contest in OTHERS.items():
        contest.peers[client].prepare()
    ours = (*module("benchmarks.peers.ours_queue"), "--run")
    runs: dict[str, list[Run]] = {name: [] for name in ("queue, run", *OTHERS)}
    with tempfile.TemporaryDirectory(prefix="benchmarks-") as name, ExitStack() as opened:
        servers = {}
        for contest in (STAN, NSQ):
            folder = Path(name).resolve() / contest.reference
            folder.mkdir()
            address = opened.enter_context(contest.open_server(folder))
            servers[contest.reference] = address, processes_in(folder)
        for number in range(1, rounds + 1):
            tell(f"{case.title}: round {number} of {rounds}, ours")
            words = [*ours, *case.words(there.addresses[0], _STREAM, case.messages)]
            runs["queue, run"].append(run_program(words, there.pids, 0, _TIMEOUT))
            for client, contest in OTHERS.items():
                tell(f"{case.title}: round {number} of {rounds}, {client}")
                address, pids = servers[contest.reference]
                stream = f"{client}-{number}"
                fill(contest.publish, case, address, stream)
                words = [*contest.peers[client].command]
                words += case.words(address, stream, case.messages)
                runs[client].append(run_program(words, pids, 0, _TIMEOUT))
    return summarize(case, runs, "go-nsq")
