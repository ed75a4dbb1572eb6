"""Reading on through pauses, and what is said where that is not wished."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterable, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any, Final, TypeVar

import pytest

from liftbridge_aio import (
    Client,
    ClientOptions,
    ConsumerGroup,
    EndReason,
    LiftbridgeError,
    MergedSubscription,
    Message,
    PartitionPaused,
    Record,
    StartAt,
    StreamOptions,
    StreamPartition,
    Subscription,
)
from liftbridge_aio.model import RESERVED_STREAMS
from liftbridge_aio.queue import Delivery, Queue, RetryStreams
from liftbridge_aio.queue.acks_store import acks_stream
from liftbridge_aio.queue.retry_tiers import tier_stream
from liftbridge_aio.transactions import ClaimedLog
from support.queues import after, queue_arguments
from support.raw import BOUND, eventually
from support.servers.node import LiftbridgeNode, Server

EARLIEST: Final = StartAt.earliest()
IDLE: Final = 0.15
"""Seconds without messages after which partitions pause: far below what is waited between tries."""

pytestmark = pytest.mark.parametrize("data_path", ["lane"], indirect=True)  # both know of no pauses

T = TypeVar("T")
Reader = Subscription | MergedSubscription | ConsumerGroup

EACH_KIND = pytest.mark.parametrize("kind", ["one", "several", "group"])


@pytest.fixture
async def client(server: Server, stream_name: str) -> AsyncIterator[Client]:
    """With so little room that a backlog stays in the server."""
    async with Client(server.address, options=ClientOptions(max_buffered_bytes=2**14)) as client:
        yield client
        # v1.9.0 counts a stream down twice where it is paused and then deleted.
        await client.resume_stream(stream_name)
        await client.delete_stream(stream_name)


@asynccontextmanager
async def entered(client: Client, stream: str, kind: str) -> AsyncIterator[Reader]:
    """A reader that resumes what is paused."""
    reader: Reader
    match kind:
        case "one":
            reader = client.subscribe(stream, partition=0, start=EARLIEST, unpause=True)
        case "several":
            reader = client.subscribe(stream, partition=[0], start=EARLIEST, unpause=True)
        case _:
            reader = client.group(f"group-{stream}", [stream], start=EARLIEST, unpause=True)
    async with asyncio.timeout(2 * BOUND), reader:
        yield reader


async def offsets(reader: Reader, count: int) -> list[int]:
    return [(await anext(reader)).offset for _ in range(count)]


async def has_paused(client: Client, stream: str) -> bool:
    return (await client.fetch_partition_metadata(stream, 0)).paused


@EACH_KIND
async def test_who_resumes_reads_what_was_paused_before_and_midway(
    client: Client, stream_name: str, kind: str
) -> None:
    await client.create_stream(stream_name)
    await client.publish_many(stream_name, [b""] * 5)
    await client.pause_stream(stream_name)
    async with entered(client, stream_name, kind) as reader:
        assert await offsets(reader, 5) == [0, 1, 2, 3, 4]
        for first in (5, 7):
            await client.pause_stream(stream_name)
            await client.publish_many(stream_name, [b""] * 2)
            assert await offsets(reader, 2) == [first, first + 1]


@EACH_KIND
async def test_who_resumes_reads_a_backlog_of_a_partition_that_pauses_itself(
    client: Client, stream_name: str, kind: str
) -> None:
    await client.create_stream(stream_name, options=StreamOptions(auto_pause_time=IDLE))
    await client.publish_many(stream_name, [bytes(1000)] * 200)
    async with entered(client, stream_name, kind) as reader:
        read: list[int] = []
        for pauses in range(3):
            read += await offsets(reader, 20)
            assert len(read) == 20 * (pauses + 1)
            await eventually(lambda: has_paused(client, stream_name))
        read += await offsets(reader, 140)
    assert read == list(range(200))


@EACH_KIND
async def test_who_resumes_misses_no_message_that_wakes_a_partition(
    client: Client, stream_name: str, kind: str
) -> None:
    await client.create_stream(stream_name, options=StreamOptions(auto_pause_time=IDLE))
    async with entered(client, stream_name, kind) as reader:
        for offset in range(3):
            await eventually(lambda: has_paused(client, stream_name))
            await client.publish(stream_name, b"")
            assert await offsets(reader, 1) == [offset]


async def read_past_errors(messages: AsyncIterable[T]) -> tuple[list[T], list[LiftbridgeError]]:
    """Read to the end, going on after each error."""
    read: list[T] = []
    raised: list[LiftbridgeError] = []
    async with asyncio.timeout(BOUND):
        while True:
            try:
                async for message in messages:
                    read.append(message)  # noqa: PERF401 - what was read before an error counts
            except LiftbridgeError as error:
                raised.append(error)
            else:
                return read, raised


@pytest.mark.parametrize("in_lists", [False, True], ids=["messages", "lists"])
async def test_the_others_are_read_where_one_was_paused_before(
    client: Client, stream_name: str, in_lists: bool
) -> None:
    await client.create_stream(stream_name, partitions=3)
    await client.publish_many(stream_name, [Record(b"", partition=n % 3) for n in range(6)])
    await client.pause_stream(stream_name, [1])
    reader = client.read(stream_name)
    if in_lists:
        lists, raised = await read_past_errors(reader.batches())
        read = [message for each in lists for message in each]
    else:
        read, raised = await read_past_errors(reader)
    assert sorted((message.partition, message.offset) for message in read) == [
        (0, 0), (0, 1), (2, 0), (2, 1)
    ]  # fmt: skip
    assert [(type(error), error.partition) for error in raised] == [(PartitionPaused, 1)]
    assert reader.errors == {1: raised[0]}
    assert reader.end_reasons == dict.fromkeys((0, 2), EndReason.STOP_REACHED)


async def test_new_messages_of_others_are_read_where_one_was_paused_before(
    client: Client, stream_name: str
) -> None:
    await client.create_stream(stream_name, partitions=2)
    await client.pause_stream(stream_name, [0])
    async with (
        asyncio.timeout(BOUND),
        aclosing(client.subscribe(stream_name, partition=[0, 1])) as reader,
    ):
        with pytest.raises(PartitionPaused):
            await anext(reader)
        await client.publish(stream_name, b"", partition=1)
        assert (await anext(reader)).partition == 1
        await client.publish(stream_name, b"", partition=0)
        await reader.seek({0: 0})
        assert (await anext(reader)).partition == 0
        assert (dict(reader.end_reasons), dict(reader.errors)) == ({}, {})


async def test_a_block_over_several_does_not_begin_where_one_is_paused(
    client: Client, stream_name: str
) -> None:
    await client.create_stream(stream_name, partitions=2)
    await client.publish_many(stream_name, [Record(b"", partition=n) for n in (0, 1)])
    await client.pause_stream(stream_name, [0])
    reader = client.read(stream_name)
    with pytest.raises(PartitionPaused) as caught:
        await reader.__aenter__()
    assert caught.value.partition == 0
    assert await read_past_errors(reader) == ([], [])
    assert reader.end_reasons == {1: EndReason.CLOSED}  # it was not read


@pytest.mark.parametrize("midway", [False, True], ids=["before", "midway"])
async def test_a_group_reports_a_paused_partition_once_and_reads_it_when_resumed(
    client: Client, stream_name: str, caplog: pytest.LogCaptureFixture, midway: bool
) -> None:
    place = StreamPartition(stream_name, 0)
    await client.create_stream(stream_name, partitions=2)
    for partition in (0, 1):
        await client.publish(stream_name, b"", partition=partition)
    if not midway:
        await client.pause_stream(stream_name, [0])
    group = client.group(f"group-{stream_name}", [stream_name], start=EARLIEST)
    with caplog.at_level(logging.WARNING, "liftbridge_aio.groups"):
        async with asyncio.timeout(2 * BOUND), group:
            assert group.blocked == {}
            read = [await anext(group) for _ in range(1 + midway)]
            if midway:
                await client.pause_stream(stream_name, [0])
            waiting = asyncio.create_task(anext(group))
            await eventually(lambda: len(group.blocked) == 1)
            assert isinstance(group.blocked[place], PartitionPaused)
            assert "blocked=1" in repr(group)
            await group.commit(read[-1])
            if midway:
                await client.publish(stream_name, b"", partition=0)
            else:
                await client.resume_stream(stream_name, [0])
            assert (await waiting).offset == midway
            await eventually(lambda: not group.blocked)
    [warning] = caplog.messages
    assert repr(stream_name) in warning
    assert "resume_stream" in warning


async def test_who_resumes_a_paused_partition_reads_its_last_messages(
    client: Client, stream_name: str
) -> None:
    await client.create_stream(stream_name)
    await client.publish_many(stream_name, [b"0", b"1", b"2"])
    await client.pause_stream(stream_name)
    await eventually(lambda: has_paused(client, stream_name))
    async with asyncio.timeout(BOUND):
        with pytest.raises(PartitionPaused):
            await client.last(stream_name, partition=0, n=2)
        last: list[Message] = await client.last(stream_name, partition=0, n=2, unpause=True)
    assert [message.value for message in last] == [b"1", b"2"]


# Queues


@asynccontextmanager
async def queue_of(client: Client, stream: str, **other: Any) -> AsyncIterator[Queue[Delivery]]:
    settings = {"retry": after(0.05), "commit_interval": 0.1, **other}
    async with (
        asyncio.timeout(3 * BOUND),
        client.queue(stream, **queue_arguments(group=f"queue-{stream}", **settings)) as queue,
    ):
        yield queue


async def acked(queue: Queue[Delivery], count: int) -> list[int]:
    found = []
    for _ in range(count):
        delivery = await anext(queue)
        found.append(delivery.message.offset)
        await delivery.ack(sync=True)
    return found


async def test_a_queue_resumes_a_partition_that_pauses_itself(
    client: Client, stream_name: str
) -> None:
    await client.create_stream(stream_name, options=StreamOptions(auto_pause_time=IDLE))
    await client.publish_many(stream_name, [bytes(1000)] * 200)
    async with queue_of(client, stream_name, unpause=True) as queue:
        read = await acked(queue, 20)
        await eventually(lambda: has_paused(client, stream_name))
        read += await acked(queue, 180)
        assert queue.blocked == {}
        await client.pause_stream(stream_name)
        await client.publish(stream_name, b"")
        read += await acked(queue, 1)
    assert read == list(range(201))


async def test_a_queue_names_partitions_that_it_cannot_read(
    client: Client, stream_name: str
) -> None:
    place = StreamPartition(stream_name, 0)
    await client.create_stream(stream_name)
    await client.publish(stream_name, b"")
    await client.pause_stream(stream_name)
    async with queue_of(client, stream_name) as queue:
        waiting = asyncio.create_task(acked(queue, 1))
        await eventually(lambda: place in queue.blocked)
        assert isinstance(queue.blocked[place], PartitionPaused)
        [text] = queue.explain()
        assert text.startswith(f"{stream_name}/0: cannot be read: PartitionPaused")
        await client.resume_stream(stream_name)
        assert await waiting == [0]
        await eventually(lambda: not queue.blocked)
        assert queue.explain() == []


async def test_a_queue_needs_no_resume_for_its_own_streams(
    client: Client, stream_name: str
) -> None:
    await client.create_stream(stream_name)
    await client.publish_many(stream_name, [b"0", b"1"])
    tiers: dict[str, Any] = {"retry_streams": RetryStreams((0.3,)), "retry": after(0.3)}
    group = f"queue-{stream_name}"
    own = [tier_stream(stream_name, group, 0.3), acks_stream(group, stream_name)]
    own.append(acks_stream(group, own[0]))
    async with queue_of(client, stream_name, **tiers) as queue:
        for name in own:
            await client.pause_stream(name)
        delivery = await anext(queue)
        await delivery.nack()
        await acked(queue, 1)
        again = await anext(queue)
        assert (again.stream, again.attempt) == (own[0], 2)
        for name in own:
            await client.pause_stream(name)
        await again.ack(sync=True)
    for name in own:
        await client.pause_stream(name)
    await client.publish(stream_name, b"2")
    async with queue_of(client, stream_name, **tiers) as queue:
        assert await acked(queue, 1) == [2]
    for name in own:
        await client.resume_stream(name)  # see `client`
        await client.delete_stream(name)


async def test_own_streams_of_the_package_do_not_pause_themselves(
    start_real_server: Callable[..., LiftbridgeNode], stream_name: str
) -> None:
    settings = {"streams.auto.pause.time": "300ms", "streams.retention.max.messages": 1}
    node = await asyncio.to_thread(start_real_server, settings)
    async with Client(node.address) as client:
        await client.create_stream(stream_name)
        other = f"{stream_name}.other"
        await client.create_stream(other)
        await client.publish(stream_name, b"0")
        tiers: dict[str, Any] = {"retry_streams": RetryStreams((60.0,)), "retry": after(60)}
        async with queue_of(client, stream_name, unpause=True, **tiers) as queue:
            assert await acked(queue, 1) == [0]
            await ClaimedLog.open(client, f"{stream_name}.log")
            await client.publish(other, b"0")
            await eventually(lambda: has_paused(client, other))
            found = {*(await client.fetch_metadata()).streams}
            names = found - {stream_name, other, *RESERVED_STREAMS}
            assert len(names) == 4, names
            assert not any([await has_paused(client, name) for name in names])
