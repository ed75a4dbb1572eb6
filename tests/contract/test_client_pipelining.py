"""Many publishes at once through the client: order, room, outcomes, flush."""

from __future__ import annotations

import asyncio

import pytest

from liftbridge_aio import (
    Ack,
    AckPolicy,
    Client,
    ClientOptions,
    DuplicateCorrelationId,
    InvalidRequest,
    PartitionNotFound,
    PartitionReadonly,
    PublishManyFailed,
    PublishNotSent,
    PublishTimeout,
    Record,
    StreamNotFound,
)
from liftbridge_aio.testing import FaultProxy
from support.clients import EARLIEST, LATEST, Watcher, read_out, stored, values
from support.raw import BOUND, eventually
from support.servers.node import Server

NONE = AckPolicy.NONE


def numbers(count: int) -> list[bytes]:
    return [b"%d" % n for n in range(count)]


async def test_pipelined_publishes_keep_their_order_in_each_partition(
    client: Client, stream_name: str
) -> None:
    await client.create_stream(stream_name, partitions=2)

    futures = [
        await client.publish_async(stream_name, value, partition=partition, ack_timeout=BOUND)
        for value in numbers(2000)
        for partition in range(2)
    ]
    async with asyncio.timeout(BOUND):
        acks = await asyncio.gather(*futures)
    for partition in range(2):
        assert [ack.offset for ack in acks[partition::2]] == list(range(2000))
        assert values(await read_out(client, stream_name, partition)) == numbers(2000)


async def test_order_holds_from_the_first_message_and_across_ack_policies(
    client: Client, stream_name: str
) -> None:
    await client.create_stream(stream_name)

    for n, value in enumerate(numbers(300)):
        await client.publish_async(stream_name, value, ack_policy=AckPolicy(n % 3))
    await client.flush()
    assert await stored(client, stream_name, 300) == numbers(300)


async def test_a_future_resolves_with_the_ack_of_its_own_message(
    client: Client, stream_name: str
) -> None:
    await client.create_stream(stream_name)

    futures = {
        f"id-{n}": await client.publish_async(stream_name, b"%d" % n, correlation_id=f"id-{n}")
        for n in range(100)
    }
    for name, future in futures.items():
        ack = await future
        assert ack is not None
        assert (ack.correlation_id, ack.offset) == (name, int(name[3:]))


async def test_an_id_in_flight_is_refused_and_may_be_used_again_later(
    client: Client, stream_name: str
) -> None:
    await client.create_stream(stream_name)

    first = await client.publish_async(stream_name, b"first", correlation_id="id")
    with pytest.raises(DuplicateCorrelationId, match="'id'") as refused:
        await client.publish_async(stream_name, b"twice", correlation_id="id")
    assert (refused.value.stream, refused.value.partition) == (stream_name, 0)
    await first
    await client.publish(stream_name, b"later", correlation_id="id")
    assert values(await read_out(client, stream_name)) == [b"first", b"later"]


# Back-pressure


async def test_never_more_messages_are_unsettled_than_the_window_holds(
    server: Server, stream_name: str
) -> None:
    async with Client(server.address, options=ClientOptions(max_in_flight=4)) as client:
        await client.create_stream(stream_name)
        futures: list[asyncio.Future[Ack]] = []
        most = 0

        async def publish(value: bytes) -> None:
            nonlocal most
            future = await client.publish_async(stream_name, value)
            futures.append(future)
            unsettled = sum(not future.done() for future in futures)
            figures = client.statistics().publisher
            assert figures is not None
            most = max(most, figures.in_flight, unsettled)
            await future

        async with asyncio.timeout(BOUND):
            await asyncio.gather(*map(publish, numbers(200)))
        assert most == 4
        assert values(await read_out(client, stream_name)) == numbers(200)


async def test_the_window_counts_bytes_too(server: Server, stream_name: str) -> None:
    async with Client(server.address, options=ClientOptions(max_in_flight_bytes=10_000)) as client:
        await client.create_stream(stream_name)
        most = 0

        for _ in range(50):
            await client.publish_async(stream_name, bytes(3000))
            figures = client.statistics().publisher
            assert figures is not None
            most = max(most, figures.in_flight_bytes)
        await client.flush()
        assert 6000 < most <= 10_000


async def test_a_message_larger_than_the_window_goes_alone(
    server: Server, stream_name: str
) -> None:
    async with Client(server.address, options=ClientOptions(max_in_flight_bytes=100)) as client:
        await client.create_stream(stream_name)
        async with asyncio.timeout(BOUND):
            await client.publish_many(stream_name, [bytes(1000)] * 3)
        assert len(await read_out(client, stream_name)) == 3


async def test_without_room_in_time_a_publish_was_not_sent(
    server: Server, stream_name: str
) -> None:
    async with FaultProxy(server.address) as proxy:
        options = ClientOptions(
            max_in_flight=1, publish_timeout=0.1, address_map=lambda _: proxy.address
        )
        async with Client(proxy.address, options=options) as client:
            await client.create_stream(stream_name)
            await client.publish(stream_name, b"first")
            proxy.freeze()
            waiting = await client.publish_async(stream_name, b"second")

            with pytest.raises(PublishTimeout, match="no room") as refused:
                await client.publish(stream_name, b"third")
            assert isinstance(refused.value, TimeoutError)
            assert (refused.value.stream, refused.value.partition) == (stream_name, 0)
            proxy.thaw()
            await waiting
            assert values(await read_out(client, stream_name)) == [b"first", b"second"]


async def test_a_publish_cancelled_while_it_waits_for_room_leaves_nothing_behind(
    server: Server, stream_name: str
) -> None:
    async with FaultProxy(server.address) as proxy:
        options = ClientOptions(max_in_flight=1, address_map=lambda _: proxy.address)
        async with Client(proxy.address, options=options) as client:
            await client.create_stream(stream_name)
            await client.publish(stream_name, b"first")
            proxy.freeze()
            await client.publish_async(stream_name, b"second")
            third = asyncio.create_task(client.publish(stream_name, b"third"))

            async def third_waits() -> bool:
                figures = client.statistics().publisher
                return figures is not None and figures.waiting == 1

            await eventually(third_waits)
            third.cancel()
            with pytest.raises(asyncio.CancelledError):
                await third
            proxy.thaw()
            await client.publish(stream_name, b"fourth")
            assert values(await read_out(client, stream_name)) == [b"first", b"second", b"fourth"]


# Many at once


async def test_publish_many_takes_values_and_records_in_order(
    client: Client, stream_name: str
) -> None:
    await client.create_stream(stream_name, partitions=2)

    acks = await client.publish_many(
        stream_name,
        [b"0", Record(b"1", b"key", {"name": b"header"}, 1), Record(b"2", partition=0)],
    )
    assert [(ack.partition, ack.offset) for ack in acks] == [
        (0, 0),
        (1, 0),
        (0, 1),
    ]
    [message] = await read_out(client, stream_name, 1)
    assert (message.key, message.value, message.headers["name"]) == (b"key", b"1", b"header")


async def test_publish_many_of_nothing_is_nothing(client: Client, stream_name: str) -> None:
    assert await client.publish_many(stream_name, []) == []


async def test_publish_many_tells_the_outcome_of_each(client: Client, stream_name: str) -> None:
    await client.create_stream(stream_name, partitions=2)
    await client.set_stream_readonly(stream_name, [1])
    # v1.9.0 sends errors and acks from two goroutines without a lock: as its first responses on a
    # connection they may be garbled.
    await client.publish(stream_name, b"first")
    records = [Record(b"0"), Record(b"1", partition=1), Record(b"2"), Record(b"3", partition=9)]

    with pytest.raises(PublishManyFailed, match="2 of 4") as failed:
        await client.publish_many(stream_name, records)
    first, second, third, fourth = failed.value.outcomes
    assert [getattr(ack, "offset", None) for ack in (first, third)] == [1, 2]
    assert isinstance(second, PartitionReadonly)
    assert isinstance(fourth, PartitionNotFound)
    assert failed.value.__cause__ is second
    assert failed.value.stream == stream_name
    assert str(failed.value).count("[stream=") == 1
    assert second.message in str(failed.value)
    assert values(await read_out(client, stream_name)) == [b"first", b"0", b"2"]
    await client.flush()  # whoever looked at the outcomes need not hear of them again


async def test_publish_many_has_an_outcome_for_each_record_even_if_one_is_unsent(
    client: Client, stream_name: str
) -> None:
    await client.create_stream(stream_name)
    records = [Record(b"0"), Record(b"1", headers={"subject": b""}), Record(b"2")]

    with pytest.raises(PublishManyFailed) as failed:
        await client.publish_many(stream_name, records)
    outcomes = failed.value.outcomes
    assert [type(outcome) for outcome in outcomes] == [Ack, InvalidRequest, PublishNotSent]
    assert values(await read_out(client, stream_name)) == [b"0"]


# Flush, and messages without ack


async def test_flush_proves_that_messages_without_ack_are_stored(
    client: Client, stream_name: str
) -> None:
    await client.create_stream(stream_name)

    for value in numbers(1000):
        await client.publish_async(stream_name, value, ack_policy=NONE)
    async with asyncio.timeout(BOUND):
        await client.flush()
    # Nothing but the server's own work is left to wait for, so closing loses nothing.
    await client.aclose()
    async with Client(*server_of(client)) as other:
        assert await stored(other, stream_name, 1000) == numbers(1000)


def server_of(client: Client) -> list[str]:
    return [broker.address for broker in client.metadata.brokers.values()]


async def test_a_message_without_ack_is_settled_once_it_is_written(
    client: Client, stream_name: str
) -> None:
    await client.create_stream(stream_name)

    future = await client.publish_async(stream_name, b"value", ack_policy=NONE)
    async with asyncio.timeout(BOUND):
        assert await future is None
    figures = client.statistics().publisher
    assert figures is not None
    assert figures.in_flight == 0


async def test_late_errors_reach_the_hook_and_the_next_flush_once(
    server: Server, stream_name: str
) -> None:
    watcher = Watcher()
    async with Client(server.address, options=ClientOptions(hook=watcher)) as client:
        await client.create_stream(stream_name)
        await client.set_stream_readonly(stream_name)

        for name in ("first", "second"):
            await client.publish_unacked(stream_name, b"", correlation_id=name)
        with pytest.raises(PartitionReadonly) as failed:
            await client.flush()
        assert (failed.value.stream, failed.value.partition) == (stream_name, 0)
        assert [
            (event.stream, event.partition, event.correlation_id, type(event.error))
            for event in watcher.failures
        ] == [
            (stream_name, 0, "first", PartitionReadonly),
            (stream_name, 0, "second", PartitionReadonly),
        ]
        assert failed.value is watcher.failures[0].error
        await client.flush()


async def test_messages_without_ack_to_an_unknown_stream_are_reported(
    server: Server, stream_name: str
) -> None:
    watcher = Watcher()
    async with Client(server.address, options=ClientOptions(hook=watcher)) as client:
        await client.publish_unacked(stream_name, b"")
        with pytest.raises(StreamNotFound) as failed:
            await client.flush()
        assert failed.value.stream == stream_name
        assert [event.stream for event in watcher.failures] == [stream_name]


async def test_flush_raises_what_nobody_has_seen_and_nothing_else(
    client: Client, stream_name: str
) -> None:
    await client.create_stream(stream_name, partitions=3)
    await client.set_stream_readonly(stream_name, [1, 2])

    seen = await client.publish_async(stream_name, b"", partition=1)
    with pytest.raises(PartitionReadonly):
        await seen
    await client.flush()
    await client.publish_async(stream_name, b"", partition=2)
    unseen = await client.publish_async(stream_name, b"", partition=1)
    with pytest.raises(PartitionReadonly) as failed:
        await client.flush()
    assert failed.value.partition == 2
    await client.flush()
    with pytest.raises(PartitionReadonly):
        await unseen


async def test_flush_waits_for_publishes_that_wait_for_room(
    server: Server, stream_name: str
) -> None:
    async with Client(server.address, options=ClientOptions(max_in_flight=2)) as client:
        await client.create_stream(stream_name)
        tasks = [asyncio.create_task(client.publish(stream_name, v)) for v in numbers(20)]
        await asyncio.sleep(0)  # each has asked for room

        async with asyncio.timeout(BOUND):
            await client.flush()
        assert values(await read_out(client, stream_name)) == numbers(20)
        await asyncio.gather(*tasks)


async def test_flush_of_nothing_returns_at_once(client: Client) -> None:
    async with asyncio.timeout(BOUND):
        await client.flush()


async def test_an_error_that_nobody_looks_at_is_not_printed(
    client: Client, stream_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    await client.create_stream(stream_name)
    await client.set_stream_readonly(stream_name)

    future = await client.publish_async(stream_name, b"")
    await asyncio.wait([future])
    with pytest.raises(PartitionReadonly):
        await client.flush()
    del future
    assert caplog.records == []


async def test_messages_are_read_while_others_are_published(
    client: Client, stream_name: str
) -> None:
    await client.create_stream(stream_name)

    async with client.subscribe(stream_name, partition=0) as subscription:
        for value in numbers(500):
            await client.publish_async(stream_name, value)
        async with asyncio.timeout(BOUND):
            received = [await anext(subscription) for _ in range(500)]
    assert values(received) == numbers(500)
    again = [
        m async for m in client.subscribe(stream_name, partition=0, start=EARLIEST, stop=LATEST)
    ]
    assert again == received
