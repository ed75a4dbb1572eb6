"""Our NSQ client beside others of its kind, on one nsqd."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from support.servers.nsq_daemons import NsqDaemon

from .cases import Case, Choice, Kind
from .own_programs import module
from .peers.environments import NSQ_PEERS
from .programs import run_program
from .serving import processes_in
from .summary import OURS, CaseSummary, Failed, Run, summarize

REFERENCE: Final = "go-nsq"
_TIMEOUT: Final = 90.0
_SLOW: Final = frozenset({"ansq"})
"""Clients that take a tenth of the messages, as a run would take minutes."""
_CASES: Final = (
    Case(Kind.PUBLISH, 100_000, window=1_000),
    Case(Kind.PUBLISH, 5_000, window=1),
    Case(Kind.CONSUME, 100_000),
)


def measure_over_nsq(
    choice: Choice, rounds: int, tell: Callable[[str], None]
) -> Iterator[CaseSummary]:
    """Measure publishing and consuming; the clients take turns.

    Args:
        choice: How many messages.
        rounds: How often each client has its turn.
        tell: Is told how far it has come.

    Raises:
        ServerUnavailable: nsqd cannot be built.
        EnvironmentUnavailable: A client cannot be had here.
        NsqDidNotStart: It was not ready in time.
    """
    programs = {OURS: list(module("benchmarks.peers.ours_nsq"))}
    for name, peer in NSQ_PEERS.items():
        peer.prepare()
        programs[name] = peer.command
    with tempfile.TemporaryDirectory(prefix="benchmarks-") as name:
        folder = Path(name).resolve()
        nsqd = NsqDaemon("nsqd", folder, ("-mem-queue-size=1000000", "-log-level=error"))
        nsqd.start()
        try:
            for case in _CASES:
                yield _measure(case, programs, nsqd, choice, rounds, tell)
        finally:
            nsqd.kill()


def _measure(
    case: Case,
    programs: dict[str, list[str]],
    nsqd: NsqDaemon,
    choice: Choice,
    rounds: int,
    tell: Callable[[str], None],
) -> CaseSummary:
    runs: dict[str, list[Run]] = {name: [] for name in programs}
    for number in range(1, rounds + 1):
        for name, program in programs.items():
            topic = f"{case.kind.value}-{case.window}-{number}-{name}"
            messages = 1_000 if choice.quick else choice.messages or case.messages
            if name in _SLOW:
                messages //= 10
            tell(f"{case.title}: round {number} of {rounds}, {name}")
            if case.kind is Kind.CONSUME:
                filled = _run(programs[OURS], Case(Kind.PUBLISH, messages), nsqd, topic, messages)
                if isinstance(filled, Failed):
                    runs[name].append(filled)
                    continue
            runs[name].append(_run(program, case, nsqd, topic, messages))
    return summarize(case, runs)


def _run(program: list[str], case: Case, nsqd: NsqDaemon, topic: str, messages: int) -> Run:
    words = [*program, *case.words(nsqd.address, topic, messages)]
    return run_program(words, processes_in(nsqd.folder), case.server_messages, _TIMEOUT)
