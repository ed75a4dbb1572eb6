"""Our client of NATS Streaming beside others of its kind, on one server that stores in memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from support.servers.build import build_streaming
from support.servers.streaming import StreamingServer

from .cases import Case, Kind
from .contest import Contest
from .own_programs import module
from .peers.environments import STAN_PEERS
from .summary import OURS


@contextmanager
def _streaming(folder: Path) -> Iterator[str]:
    # Neither the number of channels nor that of their messages is limited.
    server = StreamingServer(build_streaming(), folder, arguments=("-mc", "0", "-mm", "0"))
    server.start()
    try:
        yield f"{server.host}:{server.port}"
    finally:
        server.kill()


STAN: Final = Contest(
    open_server=_streaming,
    own={OURS: module("benchmarks.peers.ours_stan")},
    peers=STAN_PEERS,
    reference="stan.go",
    cases=(
        Case(Kind.PUBLISH, 100_000),
        Case(Kind.PUBLISH, 5_000, window=1),
        Case(Kind.CONSUME, 100_000),
    ),
)
