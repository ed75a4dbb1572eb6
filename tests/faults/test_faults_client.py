"""The client's handling of the faults of `broker.faults`, and their effect on its users."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Final, Literal

import pytest

from liftbridge_aio import (
    AckTimeout,
    Client,
    ClientOptions,
    Message,
    PublishOutcomeUnknown,
    RequestTimeout,
    Retry,
    StreamExists,
    StreamNotFound,
)
from liftbridge_aio.broker import EmbeddedBroker
from support.clients import EARLIEST, read_out, stored, take, values
from support.faults import QUICK
from support.raw import BOUND

DATA_PATHS: Final = ["lane"]


@pytest.fixture
async def client(broker: EmbeddedBroker) -> AsyncIterator[Client]:
    """A client that is quick to try again, and a stream called "s"."""
    async with Client(broker.address, options=ClientOptions(backoff=QUICK)) as client:
        await client.create_stream("s")
        yield client


async def test_a_lost_ack_is_an_unknown_outcome(broker: EmbeddedBroker, client: Client) -> None:
    broker.faults.drop("PublishAsync", at="reply")

    with pytest.raises(AckTimeout):
        await client.publish("s", b"stored", ack_timeout=0.2)

    assert await stored(client, "s", 1) == [b"stored"]


async def test_a_lost_message_is_an_unknown_outcome_too(
    broker: EmbeddedBroker, client: Client
) -> None:
    broker.faults.drop("PublishAsync")

    with pytest.raises(AckTimeout):
        await client.publish("s", b"lost", ack_timeout=0.2)
    await client.publish("s", b"next")

    assert await stored(client, "s", 1) == [b"next"]


async def test_a_retry_after_a_lost_ack_may_store_the_message_twice(
    broker: EmbeddedBroker, client: Client
) -> None:
    broker.faults.drop("PublishAsync", at="reply")

    ack = await client.publish("s", b"value", ack_timeout=0.2, retry=Retry(attempts=2))

    assert ack is not None
    assert ack.offset == 1
    assert await stored(client, "s", 2) == [b"value", b"value"]


async def test_repeated_acks_do_no_harm(broker: EmbeddedBroker, client: Client) -> None:
    broker.faults.duplicate("PublishAsync", at="reply", times=10)

    async with asyncio.timeout(BOUND):
        futures = [await client.publish_async("s", b"%d" % number) for number in range(20)]
        acks = await asyncio.gather(*futures)

    assert [ack.offset for ack in acks] == list(range(20))
    broker.faults.assert_all_applied()


async def test_a_publish_session_that_fails_leaves_no_doubt_about_the_rest(
    broker: EmbeddedBroker, client: Client
) -> None:
    await client.publish("s", b"first")
    broker.faults.fail("PublishAsync", at="reply")

    with pytest.raises(PublishOutcomeUnknown):
        await client.publish("s", b"unknown")
    await client.publish("s", b"next")

    assert await stored(client, "s", 3) == [b"first", b"unknown", b"next"]


async def test_each_offset_comes_once_whatever_the_broker_repeats(
    broker: EmbeddedBroker, client: Client
) -> None:
    for number in range(5):
        await client.publish("s", b"%d" % number)
    broker.faults.duplicate("Subscribe", at="reply", times=5)

    received = await read_out(client, "s")

    assert [message.offset for message in received] == list(range(5))
    broker.faults.assert_all_applied()


async def test_a_lost_message_shows_as_a_gap(broker: EmbeddedBroker, client: Client) -> None:
    for number in range(4):
        await client.publish("s", b"%d" % number)
    broker.faults.drop("Subscribe", at="reply", skip=1)

    received = await read_out(client, "s")

    assert [message.offset for message in received] == [0, 2, 3]


async def test_a_subscription_that_breaks_goes_on_without_loss(
    broker: EmbeddedBroker, client: Client
) -> None:
    for number in range(6):
        await client.publish("s", b"%d" % number)
    broker.faults.fail("Subscribe", at="reply", skip=2, times=2)

    async with client.subscribe("s", start=EARLIEST) as subscription:
        received = await take(subscription, 6)

    assert [message.offset for message in received] == list(range(6))
    broker.faults.assert_all_applied()


async def test_a_subscription_whose_link_is_cut_goes_on_without_loss(
    broker: EmbeddedBroker, client: Client
) -> None:
    received = []
    async with client.subscribe("s", start=EARLIEST) as subscription:
        for number in range(4):
            await client.publish("s", b"%d" % number)
            received += await take(subscription, 1)
            assert await broker.faults.cut_links(carrying="Subscribe", reset=True) == 1

    assert [message.offset for message in received] == list(range(4))


async def test_a_stalled_subscription_goes_on_when_it_is_released(
    broker: EmbeddedBroker, client: Client
) -> None:
    async with client.subscribe("s", start=EARLIEST) as subscription:
        stall = broker.faults.stall("Subscribe")
        await client.publish("s", b"0")
        await stall.wait()
        receiving = asyncio.create_task(take(subscription, 2))
        await client.publish("s", b"1")
        assert not receiving.done()

        stall.release()

        assert values(await receiving) == [b"0", b"1"]


async def test_a_stalled_stream_on_a_healthy_link_is_not_taken_for_lost(
    broker: EmbeddedBroker,
) -> None:
    """A partition without news looks the same; the health of links is that of the server."""
    options = ClientOptions(backoff=QUICK, health_interval=0.05, health_timeout=0.2)
    async with Client(broker.address, options=options) as client:
        await client.create_stream("s")
        async with client.subscribe("s", start=EARLIEST) as subscription:
            stall = broker.faults.stall("Subscribe")
            checks = broker.faults.delay("Check", 0, times=5)
            await client.publish("s", b"0")
            await stall.wait()
            await checks.wait()

            assert subscription.statistics().resubscriptions == 0
            stall.release()
            assert values(await take(subscription, 1)) == [b"0"]


async def test_a_server_that_gives_no_sign_of_life_is_left(broker: EmbeddedBroker) -> None:
    options = ClientOptions(backoff=QUICK, health_interval=0.05, health_timeout=0.1)
    async with Client(broker.address, options=options) as client:
        await client.create_stream("s")
        async with client.subscribe("s", start=EARLIEST) as subscription:
            stall = broker.faults.stall("Subscribe")
            await client.publish("s", b"0")
            await stall.wait()
            silent = broker.faults.drop("Check", times=None)
            await silent.wait()

            assert values(await take(subscription, 1)) == [b"0"]
            silent.cancel()


@pytest.mark.parametrize("close", [False, True])
async def test_after_a_go_away_the_client_goes_on_without_loss(
    broker: EmbeddedBroker, client: Client, close: bool
) -> None:
    """A publish sent before the GOAWAY arrives has an unknown outcome, hence the retry."""
    received: list[Message] = []
    async with client.subscribe("s", start=EARLIEST) as subscription:
        for number in range(6):
            await client.publish("s", b"%d" % number, retry=Retry(attempts=3))
            if number % 2:
                assert await broker.faults.go_away(close=close) > 0
        while not received or received[-1].value != b"5":
            received += await take(subscription, 1)

    assert [message.offset for message in received] == list(range(len(received)))
    assert list(dict.fromkeys(values(received))) == [b"%d" % number for number in range(6)]


async def test_metadata_is_asked_for_again(broker: EmbeddedBroker, client: Client) -> None:
    failing = broker.faults.fail("FetchMetadata", times=2)

    metadata = await client.fetch_metadata()

    assert "s" in metadata.streams
    assert failing.applied == 2


@pytest.mark.parametrize("denials", [20, None])
async def test_a_leader_that_does_not_know_its_partition_yet_is_asked_again(
    broker: EmbeddedBroker, denials: int | None
) -> None:
    """Metadata lists the stream, so it is not gone, however long its leader denies it."""
    options = ClientOptions(backoff=QUICK, not_found_timeout=0.1)
    async with Client(broker.address, options=options) as client:
        await client.create_stream("s")
        await client.publish("s", b"0")
        denial = broker.faults.fail(
            "FetchPartitionMetadata", code="NOT_FOUND", text="partition not found", times=denials
        )

        if denials is None:
            with pytest.raises(RequestTimeout, match="partition not found"):
                await client.fetch_partition_metadata("s", 0, timeout=0.5)
            assert denial.applied > 2
        else:
            found = await client.fetch_partition_metadata("s", 0)
            assert found.newest_offset == 0
            assert denial.applied == denials


async def test_an_answer_is_told_though_the_last_attempt_got_none(
    broker: EmbeddedBroker, client: Client
) -> None:
    broker.faults.fail(
        "FetchPartitionMetadata", code="NOT_FOUND", text="partition not found", times=1
    )
    broker.faults.stall("FetchPartitionMetadata")

    with pytest.raises(RequestTimeout, match=r"partition not found; then .* did not answer"):
        await client.fetch_partition_metadata("s", 0, timeout=2)


async def test_a_stream_is_created_though_nobody_hears_of_it(
    broker: EmbeddedBroker, client: Client
) -> None:
    stall = broker.faults.stall("CreateStream", at="reply")
    creating = asyncio.create_task(client.create_stream("t"))
    await stall.wait()

    await broker.faults.cut_links(reset=True)
    await creating

    with pytest.raises(StreamExists):
        await client.create_stream("t")


@pytest.mark.parametrize("place", ["request", "reply"])
async def test_a_change_that_is_not_answered_is_made_again(
    broker: EmbeddedBroker, client: Client, place: Literal["request", "reply"]
) -> None:
    """Long before its time is up: a server may have lost the answer."""
    broker.faults.stall("CreateStream", at=place)
    await client.create_stream("t", timeout=5)

    with pytest.raises(StreamExists):
        await client.create_stream("t")


async def test_a_change_is_made_again_soon_after_many_refusals(
    broker: EmbeddedBroker, client: Client
) -> None:
    """A server that has just elected itself may lose an answer, too."""
    text = "no known metadata leader"
    broker.faults.fail("CreateStream", code="INTERNAL", text=text, times=5)
    broker.faults.drop("CreateStream", at="reply")
    await client.create_stream("t", timeout=5)
    broker.faults.assert_all_applied()


async def test_a_change_whose_server_stopped_waiting_is_made_again(
    broker: EmbeddedBroker, client: Client
) -> None:
    text = "Failed to delete stream: raft operation timed out"
    await client.create_stream("t")
    broker.faults.fail("DeleteStream", at="reply", code="INTERNAL", text=text)
    await client.delete_stream("t")

    with pytest.raises(StreamNotFound):
        await client.delete_stream("t")
    broker.faults.assert_all_applied()


async def test_a_cursor_is_set_though_the_first_reply_is_lost(
    broker: EmbeddedBroker, client: Client
) -> None:
    await client.publish("s", b"0")
    broker.faults.fail("SetCursor", at="reply")
    broker.faults.fail("FetchCursor")

    await client.set_cursor("c", "s", 0, 0)

    assert await client.fetch_cursor("c", "s", 0) == 0
    broker.faults.assert_all_applied()


async def test_links_that_are_refused_are_made_again(broker: EmbeddedBroker) -> None:
    options = ClientOptions(backoff=QUICK)
    async with Client(broker.address, options=options) as client:
        await client.create_stream("s")
        refused = broker.faults.refuse_links(times=2)
        await client.publish("s", b"0", retry=Retry(attempts=3))
        await refused.wait()
        assert await stored(client, "s", 1) == [b"0"]


async def test_a_skewed_clock_shows_in_timestamps(broker: EmbeddedBroker, client: Client) -> None:
    await client.publish("s", b"now")
    broker.faults.skew_clock(-3600)
    await client.publish("s", b"then")
    broker.faults.skew_clock(0)

    async with client.subscribe("s", start=EARLIEST) as subscription:
        [now, then] = await take(subscription, 2)

    assert abs(now.timestamp - time.time_ns()) < 60 * 10**9
    assert abs(now.timestamp - then.timestamp - 3600 * 10**9) < 60 * 10**9
