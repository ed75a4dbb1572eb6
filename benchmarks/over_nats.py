"""Publishing over gRPC beside publishing straight over NATS, by our own client on one server."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from support.servers.build import build_server
from support.servers.node import LiftbridgeNode

from .cases import Case, Choice, Kind, cases_of
from .own_programs import module
from .programs import run_program
from .serving import EMBEDDED, REAL, processes_in
from .streams import create_stream, delete_stream
from .summary import CaseSummary, Run, summarize

GRPC: Final = "over gRPC"
CLIENTS: Final = (GRPC, "over NATS", "over NATS, no reply subject")
_TIMEOUT: Final = 90.0
_WINDOWS: Final = (1_000, 10_000)


def measure_over_nats(
    server: str, choice: Choice, rounds: int, tell: Callable[[str], None]
) -> Iterator[CaseSummary]:
    """Measure window 1,000 and 10,000, or what was asked for; the ways take turns.

    Args:
        server: `real`, or the path of a binary; of `embedded`, which has no NATS, nothing is told.
        choice: Which of the cases.
        rounds: How often each way has its turn.
        tell: Is told how far it has come.

    Raises:
        ServerUnavailable: It cannot be built.
        ServerDidNotStart: It was not ready in time.
    """
    if server == EMBEDDED:
        tell("nats: the embedded broker has none")
        return
    windows = Choice(windows=_WINDOWS, messages=choice.messages, quick=choice.quick)
    asked = choice.sizes or choice.windows or choice.ack_policies
    cases = cases_of(Kind.PUBLISH, choice if asked else windows)
    with tempfile.TemporaryDirectory(prefix="benchmarks-") as name:
        folder = Path(name).resolve()
        binary = build_server() if server == REAL else Path(server).resolve()
        node = LiftbridgeNode(binary, folder, "benchmarks")
        node.start()
        try:
            for case in cases:
                if case.nodes == 1 and case.partitions == 1 and not case.one_at_a_time:
                    yield _measure(case, node, processes_in(folder), rounds, tell)
        finally:
            node.kill()


def _measure(
    case: Case,
    node: LiftbridgeNode,
    pids: tuple[int, ...],
    rounds: int,
    tell: Callable[[str], None],
) -> CaseSummary:
    over_nats = (*module("benchmarks.peers.ours_nats"), "--nats", node.nats_url)
    programs = dict(
        zip(
            CLIENTS,
            (module("benchmarks.peers.ours"), over_nats, (*over_nats, "--no-reply-subject")),
            strict=True,
        )
    )
    runs: dict[str, list[Run]] = {name: [] for name in programs}
    for number in range(1, rounds + 1):
        for name, program in programs.items():
            tell(f"{case.title}: round {number} of {rounds}, {name}")
            stream = f"bench-{number}"
            create_stream((node.address,), stream, 1, 1)
            words = [*program, *case.words(node.address, stream, case.messages)]
            done = run_program(words, pids, case.server_messages, _TIMEOUT)
            delete_stream((node.address,), stream)
            runs[name].append(done)
    return summarize(case, runs, GRPC)
