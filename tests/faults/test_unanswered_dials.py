"""A broker at whose address nobody answers: who waits for it, and who does not."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
from collections.abc import Iterator
from typing import Final

import pytest

from liftbridge_aio import Client, ClientOptions
from liftbridge_aio._publish.broker_selection import choose_broker
from liftbridge_aio.broker import EmbeddedCluster
from support.faults import BOUND, QUICK, outcomes_of

pytestmark = pytest.mark.real_time

DATA_PATHS: Final = ["lane"]
PARTITIONS: Final = 12
PATIENCE: Final = 2.0


@contextlib.contextmanager
def unanswered_port() -> Iterator[int]:
    """A port at which connecting takes for ever: the queue of its listener is full."""
    with contextlib.ExitStack() as sockets:
        target = sockets.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(3):
            waiting = sockets.enter_context(socket.socket())
            waiting.settimeout(0)
            waiting.connect_ex(target.getsockname())
        yield target.getsockname()[1]


@pytest.mark.skipif(sys.platform != "linux", reason="fills the queue of a port as Linux does")
async def test_a_broker_that_does_not_answer_holds_up_no_other() -> None:
    """Neither who connects, nor who publishes elsewhere; what it was to get goes round it."""
    with unanswered_port() as port:
        async with EmbeddedCluster(nodes=3) as cluster:
            silent = cluster.addresses[0]
            options = ClientOptions(
                backoff=QUICK,
                connect_timeout=PATIENCE,
                address_map=lambda address: f"127.0.0.1:{port}" if address == silent else address,
            )
            # One of the seeds does not answer either.
            async with Client(
                f"127.0.0.1:{port}", *cluster.addresses[1:], options=options
            ) as client:
                await client.create_stream("s", partitions=PARTITIONS)
                brokers = client.metadata.brokers
                elsewhere = {
                    number
                    for number in range(PARTITIONS)
                    if brokers[choose_broker("s", number, brokers)[0]].address != silent
                }
                assert 0 < len(elsewhere) < PARTITIONS
                futures = [
                    await client.publish_async("s", b"", partition=number)
                    for number in range(PARTITIONS)
                ]
                await asyncio.wait([futures[number] for number in elsewhere])
                assert not [
                    n for n in range(PARTITIONS) if futures[n].done() and n not in elsewhere
                ]
                outcomes = await outcomes_of(list(futures), BOUND)
                assert len(outcomes.acked) == PARTITIONS
