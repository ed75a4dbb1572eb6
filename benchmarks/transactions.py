"""Transactions beside what they cost: committed readings, producers, and the core alone."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

from .cases import AckPolicy, Case, Choice, Kind
from .own_programs import module
from .programs import run_program
from .serving import RunningServer, running
from .streams import create_stream, delete_stream
from .summary import CaseSummary, Run, summarize

PLAIN: Final = "plain"
"""What the others are held against: no transactions."""

SEQUENCER: Final = "benchmarks.sequencer_timings"
"""What times the pure core alone."""
_PROGRAM: Final = (*module("benchmarks.peers.ours_transactions"), "--way")
_TIMEOUT: Final = 90.0
_READ: Final = 300_000
_PUBLISHED: Final = 100_000
_QUICK: Final = 2_000
_BY_MESSAGE: Final = {PLAIN: "plain", "READ_COMMITTED": "committed"}
_BY_BATCH: Final = {PLAIN: "plain-batches", "READ_COMMITTED": "committed-batches"}
_PUBLISHING: Final = {
    PLAIN: "plain",
    "a header each, waiting after 1,000": "waiting",
    "producer": "producer",
    "transactions of 1,000": "transactions",
    "the same, two at a time": "transactions-2",
}


@dataclass(frozen=True, slots=True)
class _Question:
    """What is measured: a case, the way of each client, and how a log to be read is filled."""

    case: Case
    ways: dict[str, str]
    fill: str = ""


def _questions(choice: Choice) -> Iterator[_Question]:
    read, published = (
        (_QUICK, _QUICK)
        if choice.quick
        else (choice.messages or _READ, choice.messages or _PUBLISHED)
    )
    for note, fill in (("transactions", "transactions"), ("no transactions", "plain")):
        for way, ways in (("by message", _BY_MESSAGE), ("by batches", _BY_BATCH)):
            case = Case(Kind.CONSUME, read, note=f"{note}, {way}")
            yield _Question(case, ways, fill)
    for window in choice.windows or (1_000, 4_000):
        case = Case(Kind.PUBLISH, published, window=window, ack_policy=AckPolicy.ALL)
        yield _Question(case, _PUBLISHING)


def measure_transactions(
    server: str, choice: Choice, rounds: int, tell: Callable[[str], None]
) -> Iterator[CaseSummary]:
    """Measure reading and publishing; the ways take turns on one server.

    Args:
        server: `real`, `embedded`, or the path of a binary.
        choice: How many messages, and which windows.
        rounds: How often each way has its turn.
        tell: Is told how far it has come.

    Raises:
        Exception: The server could not be started, see `serving.running`.
    """
    names = (f"bench-{number}" for number in itertools.count(1))
    with running(server, 1) as started:
        filled: dict[str, str] = {}
        for question in _questions(choice):
            case, run = question.case, partial(_run, started, question.case)
            if question.fill and question.fill not in filled:
                stream = filled[question.fill] = next(names)
                create_stream(started.addresses, stream, 1, 1)
                tell(f"{case.title}: filling")
                filling = Case(Kind.PUBLISH, case.messages, window=4_000)
                _run(started, filling, question.fill, stream)
            runs: dict[str, list[Run]] = {name: [] for name in question.ways}
            for number in range(1, rounds + 1):
                for name, way in question.ways.items():
                    tell(f"{case.title}: round {number} of {rounds}, {name}")
                    if question.fill:
                        runs[name].append(run(way, filled[question.fill]))
                        continue
                    stream = next(names)
                    create_stream(started.addresses, stream, 1, 1)
                    runs[name].append(run(way, stream))
                    delete_stream(started.addresses, stream)
            yield summarize(case, runs, PLAIN)


def _run(server: RunningServer, case: Case, way: str, stream: str) -> Run:
    words = [*_PROGRAM, way, *case.words(server.addresses[0], stream, case.messages)]
    return run_program(words, server.pids, case.server_messages, _TIMEOUT)
