"""Our NSQ client beside others of its kind, on one nsqd."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from support.servers.nsq_daemons import NsqDaemon

from .cases import Case, Kind
from .contest import Contest
from .own_programs import module
from .peers.environments import NSQ_PEERS
from .summary import OURS


@contextmanager
def _nsqd(folder: Path) -> Iterator[str]:
    nsqd = NsqDaemon("nsqd", folder, ("-mem-queue-size=1000000", "-log-level=error"))
    nsqd.start()
    try:
        yield nsqd.address
    finally:
        nsqd.kill()


NSQ: Final = Contest(
    open_server=_nsqd,
    own={OURS: module("benchmarks.peers.ours_nsq")},
    peers=NSQ_PEERS,
    reference="go-nsq",
    cases=(
        Case(Kind.PUBLISH, 100_000),
        Case(Kind.PUBLISH, 5_000, window=1),
        Case(Kind.CONSUME, 100_000),
    ),
    slow=frozenset({"ansq"}),
    keeps=False,
)
