"""NATS that goes away, comes back or stops in the middle: nothing hangs, nothing is guessed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import nats
import pytest
from nats.aio.client import Client as NatsClient

from liftbridge_aio import Ack, AckTimeout, ConnectionFailed, PublishNotSent, PublishOutcomeUnknown
from liftbridge_aio._runtime.nats_link import close_for_good
from liftbridge_aio.nats import NatsPublisher
from support.nats_streams import BOUND, Stream
from support.raw import eventually
from support.servers.nats import NatsServer

QUICK = {"reconnect_time_wait": 0.02}


def url(server: NatsServer) -> str:
    return f"nats://{server.host}:{server.port}"


def kill(server: NatsServer) -> None:
    assert server.process is not None
    server.process.kill()


@pytest.fixture
async def listener(own_nats: NatsServer) -> AsyncIterator[NatsClient]:
    """The connection of a stream that outlives NATS."""

    async def keep_quiet(_error: Exception) -> None:
        pass

    client = await nats.connect(
        url(own_nats),
        error_cb=keep_quiet,
        max_reconnect_attempts=-1,
        reconnect_time_wait=0.02,
    )
    yield client
    await close_for_good(client)


async def lost(publisher: NatsPublisher) -> None:
    await eventually(lambda: not publisher._link.connection.is_connected)


async def test_what_comes_while_nats_is_away_goes_out_in_order(
    own_nats: NatsServer, listener: NatsClient
) -> None:
    stream = Stream(listener, "orders")
    await stream.listen("orders")
    # On the same connection: who listens is known again before anything is published.
    async with NatsPublisher(listener, ack_timeout=BOUND) as publisher:
        await publisher.publish("orders", b"before")
        await asyncio.to_thread(kill, own_nats)
        await lost(publisher)
        publishes = [
            asyncio.create_task(publisher.publish("orders", b"%d" % n)) for n in range(100)
        ]
        await asyncio.sleep(0)
        await asyncio.to_thread(own_nats.start)
        assert all(isinstance(each, Ack) for each in await asyncio.gather(*publishes))
    sent = [b"before", *(b"%d" % number for number in range(100))]
    assert [message.value for message in stream.messages] == sent


async def test_an_outage_is_told_as_the_reason_of_a_missing_ack(own_nats: NatsServer) -> None:
    async with NatsPublisher(url(own_nats), connect=QUICK, ack_timeout=0.2) as publisher:
        await asyncio.to_thread(kill, own_nats)
        await lost(publisher)
        with pytest.raises(AckTimeout, match="the connection to NATS is lost"):
            await publisher.publish("orders", b"")
        for _ in range(2):  # the buffer of nats-py holds 2 MiB
            await publisher.publish_unacked("orders", b"x" * 900_000)
        with pytest.raises(PublishNotSent, match="the connection to NATS is lost"):
            await publisher.publish_unacked("orders", b"x" * 900_000)


async def test_a_server_that_stops_taking_bytes_holds_nobody(own_nats: NatsServer) -> None:
    """More than sockets and nats-py's own buffer hold, so that its `publish` waits inside."""
    assert own_nats.process is not None
    async with asyncio.timeout(BOUND):
        async with NatsPublisher(url(own_nats), ack_timeout=0.5) as publisher:
            own_nats.process.freeze()
            for publish in (publisher.publish, publisher.publish_unacked):
                outcomes = await asyncio.gather(
                    *(publish("orders", b"x" * 500_000) for _ in range(60)), return_exceptions=True
                )
                assert PublishOutcomeUnknown in {
                    kind for each in outcomes for kind in type(each).__mro__
                }
            cancelled = asyncio.create_task(publisher.publish("orders", b"x" * 500_000))
            await asyncio.sleep(0)
            cancelled.cancel()
            with pytest.raises(asyncio.CancelledError):
                await cancelled
            with pytest.raises(AckTimeout, match="without an ack"):
                await publisher.flush()
            tasks = asyncio.all_tasks()
    assert publisher._link.connection.is_closed
    await asyncio.sleep(0)
    assert len(asyncio.all_tasks()) < len(tasks)


async def test_nats_that_is_gone_for_good_is_told(own_nats: NatsServer) -> None:
    once = {**QUICK, "max_reconnect_attempts": 1}
    async with NatsPublisher(url(own_nats), connect=once) as publisher:
        await publisher.publish_plain("orders", b"")
        await asyncio.to_thread(kill, own_nats)
        await eventually(lambda: publisher._link.connection.is_closed)
        with pytest.raises(ConnectionFailed, match="connection is closed"):
            await publisher.publish("orders", b"")
