"""Our client of Durable Streams beside the published one and bare HTTP clients, on one server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from support.servers.durable_streams import DurableStreamsServer
from support.servers.npm_packages import install_packages

from .cases import Case, Kind
from .contest import Contest
from .own_programs import module
from .peers.environments import DURABLE_STREAMS_PEERS
from .summary import OURS

_SIZE: Final = 100
_OURS: Final = module("benchmarks.peers.ours_durable_streams")
_JSON: Final = "json.loads"


@contextmanager
def _reference_server(folder: Path) -> Iterator[str]:
    server = DurableStreamsServer(install_packages(), folder)
    server.start()
    try:
        yield f"127.0.0.1:{server.port}"
    finally:
        server.kill()


APPENDING: Final = Contest(
    open_server=_reference_server,
    own={OURS: _OURS},
    peers=DURABLE_STREAMS_PEERS,
    reference="httpx2",
    cases=(
        Case(Kind.PUBLISH, 5_000, _SIZE, window=1),
        Case(Kind.PUBLISH, 100_000, _SIZE),
    ),
)
READING: Final = Contest(
    open_server=_reference_server,
    own={
        OURS: _OURS,
        f"{OURS}-batches": (*_OURS, "--api", "batches"),
        _JSON: module("benchmarks.peers.durable_streams_json"),
    },
    peers=DURABLE_STREAMS_PEERS,
    reference=_JSON,
    cases=(Case(Kind.CONSUME, 100_000, _SIZE),),
)
