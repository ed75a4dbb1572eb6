"""Real servers at both ends of bridges."""

from __future__ import annotations

import itertools
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from liftbridge_aio import Client, nsq, stan
from support.bridges import Ends
from support.servers.node import LiftbridgeNode
from support.servers.nsq_daemons import NsqDaemon
from support.servers.streaming import StreamingServer

_names = itertools.count(1)


@pytest.fixture(scope="session")
def streaming(
    streaming_binary: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StreamingServer]:
    """A NATS Streaming server that stores in files."""
    folder = tmp_path_factory.mktemp("streaming")
    server = StreamingServer(streaming_binary, folder, "FILE", ("-mc", "0"))
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def nsqd(nsq_programs: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NsqDaemon]:  # noqa: ARG001
    """An nsqd."""
    daemon = NsqDaemon("nsqd", tmp_path_factory.mktemp("nsqd"))
    daemon.start()
    yield daemon
    daemon.stop()


@pytest.fixture
async def ends(
    streaming: StreamingServer, nsqd: NsqDaemon, real_server: LiftbridgeNode
) -> AsyncIterator[Ends]:
    """A client of each system, and a name that no other test uses."""
    name = f"orders-{os.getpid()}-{next(_names)}"
    async with (
        Client(real_server.address) as lift,
        stan.Client(streaming.url, cluster=streaming.cluster, client_id=f"test-{name}") as channel,
        nsq.Producer(nsqd.address) as producer,
    ):
        yield Ends(name, lift, channel, producer, real_server, streaming, nsqd)
