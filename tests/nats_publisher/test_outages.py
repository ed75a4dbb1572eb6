"""NATS that goes away, comes back or stops in the middle: nothing hangs, nothing is guessed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import nats
import pytest
from nats.aio.client import Client as NatsClient

from liftbridge_aio import (
    Ack,
    AckPolicy,
    AckTimeout,
    PublishNotSent,
    PublishOutcomeUnknown,
    PublishTimeout,
)
from liftbridge_aio.nats import NatsPublisher, NatsPublisherOptions
from liftbridge_aio.nats.in_flight import MessagesInFlight
from liftbridge_aio.nats.link import close_for_good
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


async def test_what_comes_while_nats_is_away_waits_and_goes_out_in_order(
    own_nats: NatsServer, listener: NatsClient
) -> None:
    stream = Stream(listener, "orders")
    await stream.listen("orders")
    # On the same connection: who listens is known again before anything is published.
    async with NatsPublisher(listener) as publisher:
        await publisher.publish("orders", b"before")
        await asyncio.to_thread(kill, own_nats)
        await lost(publisher)
        futures = [await publisher.submit("orders", b"%d" % number) for number in range(100)]
        futures[50].cancel()
        for _ in range(5):
            await asyncio.sleep(0)
        assert publisher.statistics().sent == 1
        await asyncio.to_thread(own_nats.start)
        outcomes = await asyncio.gather(*futures, return_exceptions=True)
    assert isinstance(outcomes.pop(50), asyncio.CancelledError)
    assert all(isinstance(outcome, Ack) for outcome in outcomes)
    sent = [b"before", *(b"%d" % number for number in range(100) if number != 50)]
    assert [message.value for message in stream.messages] == sent


async def test_what_was_handed_over_before_an_outage_is_unknown_with_its_reason(
    own_nats: NatsServer, listener: NatsClient
) -> None:
    stream = Stream(listener, "orders", silent=True)
    await stream.listen("orders")
    options = NatsPublisherOptions(ack_timeout=0.3, close_timeout=0.1)
    async with NatsPublisher(url(own_nats), options=options, connect=QUICK) as publisher:
        future = await publisher.submit("orders", b"")
        await stream.have(1)
        await asyncio.to_thread(kill, own_nats)
        with pytest.raises(AckTimeout, match="the connection to NATS is lost"):
            await future


async def test_an_outage_that_lasts_is_told_as_not_sent(own_nats: NatsServer) -> None:
    options = NatsPublisherOptions(publish_timeout=0.2, close_timeout=0.1)
    async with NatsPublisher(url(own_nats), options=options, connect=QUICK) as publisher:
        await asyncio.to_thread(kill, own_nats)
        await lost(publisher)
        with pytest.raises(PublishTimeout, match="the connection to NATS is lost"):
            await publisher.publish("orders", b"")
        with pytest.raises(PublishTimeout):
            await publisher.publish_plain("orders", b"")
        left = await publisher.submit("orders", b"")
    with pytest.raises(PublishNotSent, match="before NATS had the message"):
        await left


async def test_cancelling_works_while_nats_is_away(own_nats: NatsServer) -> None:
    async with NatsPublisher(url(own_nats), connect=QUICK) as publisher:
        await asyncio.to_thread(kill, own_nats)
        await lost(publisher)
        waiting = asyncio.create_task(publisher.publish("orders", b""))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await eventually(lambda: not publisher.statistics().in_flight)
        assert publisher.statistics().sent == 0


async def test_a_server_that_stops_taking_bytes_holds_nobody(own_nats: NatsServer) -> None:
    """More than sockets and nats-py's own buffer hold, so that its `publish` waits inside."""
    options = NatsPublisherOptions(
        ack_timeout=0.5, publish_timeout=0.5, close_timeout=0.2, max_in_flight=100
    )
    assert own_nats.process is not None
    async with asyncio.timeout(BOUND):
        async with NatsPublisher(url(own_nats), options=options) as publisher:
            own_nats.process.freeze()
            outcomes = await asyncio.gather(
                *(publisher.publish("orders", b"x" * 500_000) for _ in range(60)),
                return_exceptions=True,
            )
            kinds = {type(outcome) for outcome in outcomes}
            assert AckTimeout in kinds
            assert PublishTimeout in kinds
            assert kinds <= {AckTimeout, PublishTimeout}
            cancelled = asyncio.create_task(publisher.publish("orders", b""))
            await asyncio.sleep(0)
            cancelled.cancel()
            with pytest.raises(asyncio.CancelledError):
                await cancelled
            await publisher.submit("orders", b"", ack_policy=AckPolicy.NONE)
            tasks = asyncio.all_tasks()
    assert publisher._link.connection.is_closed
    await asyncio.sleep(0)
    assert len(asyncio.all_tasks()) < len(tasks)


async def test_a_server_that_stops_taking_bytes_holds_nobody_who_wants_no_ack(
    own_nats: NatsServer,
) -> None:
    options = NatsPublisherOptions(ack_timeout=0.3, publish_timeout=0.3, close_timeout=0.1)
    assert own_nats.process is not None
    async with asyncio.timeout(BOUND), NatsPublisher(url(own_nats), options=options) as publisher:
        own_nats.process.freeze()
        outcomes = await asyncio.gather(
            *(publisher.publish_plain("orders", b"x" * 500_000) for _ in range(60)),
            return_exceptions=True,
        )
        kinds = [type(outcome) for outcome in outcomes]
        assert kinds.count(PublishOutcomeUnknown) == 1
        assert set(kinds) == {type(None), PublishOutcomeUnknown, PublishTimeout}


async def test_a_flush_of_a_frozen_server_ends(own_nats: NatsServer) -> None:
    options = NatsPublisherOptions(ack_timeout=0.2, close_timeout=0.1)
    assert own_nats.process is not None
    async with NatsPublisher(url(own_nats), options=options) as publisher:
        own_nats.process.freeze()
        await publisher.publish("orders", b"", ack_policy=AckPolicy.NONE)
        with pytest.raises(AckTimeout, match="without an ack"):
            await publisher.flush()


async def test_a_fault_in_checking_deadlines_fails_what_waits_and_nothing_else(
    own_nats: NatsServer, listener: NatsClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = Stream(listener, "orders", silent=True)
    await stream.listen("orders")

    def faulty(*_: object) -> None:
        monkeypatch.undo()
        raise ZeroDivisionError

    async with NatsPublisher(url(own_nats), connect=QUICK) as publisher:
        future = await publisher.submit("orders", b"")
        await stream.have(1)
        monkeypatch.setattr(MessagesInFlight, "expire", faulty)
        async with asyncio.timeout(BOUND):
            with pytest.raises(PublishOutcomeUnknown, match="a fault of the publisher"):
                await future
            with pytest.raises(AckTimeout):
                await publisher.publish("orders", b"", ack_timeout=0.1)


async def test_nats_that_is_gone_for_good_is_told(own_nats: NatsServer) -> None:
    options = NatsPublisherOptions(ack_timeout=60, close_timeout=0.1)
    once = {**QUICK, "max_reconnect_attempts": 1}
    async with NatsPublisher(url(own_nats), options=options, connect=once) as publisher:
        await publisher.publish("orders", b"", ack_policy=AckPolicy.NONE)
        connection = publisher._link.connection
        listener = await nats.connect(url(own_nats), allow_reconnect=False)
        stream = Stream(listener, "orders", silent=True)
        await stream.listen("orders")
        future = await publisher.submit("orders", b"")
        await stream.have(1)
        await listener.close()
        await asyncio.to_thread(kill, own_nats)
        async with asyncio.timeout(BOUND):
            with pytest.raises(PublishOutcomeUnknown, match="closed before the ack"):
                await future
        assert connection.is_closed
