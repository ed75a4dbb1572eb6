"""The ends of subscriptions through the client, and the errors that readers receive."""

from __future__ import annotations

import asyncio

import pytest

from liftbridge_aio import (
    Client,
    ClientOptions,
    EndReason,
    LiftbridgeError,
    PartitionNotFound,
    PartitionPaused,
    StartAt,
    StopAt,
    StreamDeleted,
    StreamNotFound,
    UnsupportedByServer,
)
from support.clients import EARLIEST, LATEST, Watcher, all_here, rest, stored, take, values
from support.raw import Wire, eventually
from support.servers.node import Server

LETTERS = [b"a", b"b", b"c"]


async def filled(client: Client, stream: str, *, partitions: int = 1) -> None:
    await client.create_stream(stream, partitions=partitions)
    await client.publish_many(stream, LETTERS)


# Read-only partitions


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        pytest.param(EARLIEST, LETTERS, id="earliest"),
        pytest.param(StartAt.offset(1), LETTERS[1:], id="1"),
        pytest.param(StartAt.latest(), LETTERS[2:], id="latest"),
        pytest.param(StartAt.time(0), LETTERS, id="1970"),
        pytest.param(StartAt.new_only(), [], id="new_only"),
        pytest.param(StartAt.offset(9), [], id="beyond"),
    ],
)
async def test_a_readonly_partition_is_read_to_its_end(
    client: Client, stream_name: str, start: StartAt, expected: list[bytes]
) -> None:
    await filled(client, stream_name)
    await client.set_stream_readonly(stream_name)

    async with client.subscribe(stream_name, partition=0, start=start) as subscription:
        assert values(await rest(subscription)) == expected
    assert subscription.end_reason is EndReason.READONLY


@pytest.mark.parametrize("start", [EARLIEST, StartAt.new_only(), StartAt.latest()])
async def test_an_empty_readonly_partition_ends_at_once(
    client: Client, stream_name: str, start: StartAt
) -> None:
    await client.create_stream(stream_name)
    await client.set_stream_readonly(stream_name)

    async with client.subscribe(stream_name, partition=0, start=start) as subscription:
        assert await rest(subscription) == []
    assert subscription.end_reason is EndReason.READONLY


@pytest.mark.parametrize("stop", [LATEST, StopAt.offset(2)])
async def test_a_stop_is_a_stop_on_a_readonly_partition_too(
    client: Client, stream_name: str, stop: StopAt
) -> None:
    await filled(client, stream_name)
    await client.set_stream_readonly(stream_name)

    async with client.subscribe(
        stream_name, partition=0, start=EARLIEST, stop=stop
    ) as subscription:
        assert values(await rest(subscription)) == LETTERS
    assert subscription.end_reason is EndReason.STOP_REACHED


async def test_a_stop_that_a_readonly_partition_never_reaches_ends_as_readonly(
    client: Client, stream_name: str
) -> None:
    await filled(client, stream_name)
    await client.set_stream_readonly(stream_name)

    async with client.subscribe(
        stream_name, partition=0, start=EARLIEST, stop=StopAt.offset(9)
    ) as subscription:
        assert values(await rest(subscription)) == LETTERS
    assert subscription.end_reason is EndReason.READONLY


@pytest.mark.parametrize("partition", [0, 1], ids=["filled", "empty"])
async def test_a_tail_ends_when_its_partition_becomes_readonly(
    client: Client, stream_name: str, partition: int
) -> None:
    await filled(client, stream_name, partitions=2)
    expected = [] if partition else LETTERS

    async with client.subscribe(stream_name, partition=partition, start=EARLIEST) as subscription:
        reading = asyncio.create_task(rest(subscription))

        async def all_taken() -> bool:
            return subscription.statistics().delivered == len(expected)

        await eventually(all_taken)
        await client.set_stream_readonly(stream_name, [partition])
        assert values(await reading) == expected
    assert subscription.end_reason is EndReason.READONLY


# Deleted streams


@pytest.mark.parametrize("partition", [0, 1], ids=["filled", "empty"])
async def test_a_reader_hears_of_the_deletion_once(
    client: Client, stream_name: str, partition: int
) -> None:
    await filled(client, stream_name, partitions=2)

    async with client.subscribe(stream_name, partition=partition, start=EARLIEST) as subscription:
        await take(subscription, 0 if partition else 3)
        await client.delete_stream(stream_name)
        with pytest.raises(StreamDeleted) as ended:
            await take(subscription, 1)
        assert (ended.value.stream, ended.value.partition) == (stream_name, partition)
        with pytest.raises(StopAsyncIteration):
            await anext(subscription)
    assert subscription.end_reason is None


async def test_what_came_before_the_deletion_is_read_first(
    client: Client, stream_name: str
) -> None:
    await filled(client, stream_name)

    async with client.subscribe(stream_name, partition=0, start=EARLIEST) as subscription:
        await all_here(subscription, 3)
        await client.delete_stream(stream_name)
        assert values(await take(subscription, 3)) == LETTERS
        with pytest.raises(StreamDeleted):
            await take(subscription, 1)


# Paused partitions


async def test_a_reader_hears_that_its_partition_was_paused(
    client: Client, stream_name: str
) -> None:
    await filled(client, stream_name, partitions=2)

    async with (
        client.subscribe(stream_name, partition=1) as other,
        client.subscribe(stream_name, partition=0, start=EARLIEST) as subscription,
    ):
        await take(subscription, 3)
        await client.pause_stream(stream_name, [0])
        with pytest.raises(PartitionPaused) as ended:
            await take(subscription, 1)
        assert (ended.value.stream, ended.value.partition) == (stream_name, 0)
        await client.publish(stream_name, b"still read", partition=1)
        assert values(await take(other, 1)) == [b"still read"]


@pytest.mark.parametrize(
    ("start", "stop"),
    [
        pytest.param(EARLIEST, None, id="earliest"),
        pytest.param(StartAt.offset(1), None, id="1"),
        pytest.param(StartAt.latest(), None, id="latest"),
        pytest.param(StartAt.new_only(), None, id="new_only"),
        pytest.param(StartAt.time(0), None, id="1970"),
        pytest.param(EARLIEST, LATEST, id="earliest-latest"),
        pytest.param(EARLIEST, StopAt.offset(2), id="earliest-2"),
        pytest.param(StartAt.time(0), StopAt.time(10**18), id="times"),
    ],
)
async def test_a_paused_partition_is_no_empty_one(
    client: Client, stream_name: str, start: StartAt, stop: StopAt | None
) -> None:
    await filled(client, stream_name)
    await client.pause_stream(stream_name)

    with pytest.raises(PartitionPaused) as refused:
        async with client.subscribe(
            stream_name, partition=0, start=start, stop=stop
        ) as subscription:
            await take(subscription, 1)
    assert (refused.value.stream, refused.value.partition) == (stream_name, 0)


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        pytest.param(EARLIEST, [*LETTERS, b"new"], id="earliest"),
        pytest.param(StartAt.offset(1), [b"b", b"c", b"new"], id="1"),
        pytest.param(StartAt.latest(), [b"c", b"new"], id="latest"),
        pytest.param(StartAt.new_only(), [b"new"], id="new_only"),
        pytest.param(StartAt.time(0), [*LETTERS, b"new"], id="1970"),
    ],
)
async def test_a_reader_may_resume_what_it_reads(
    client: Client, stream_name: str, start: StartAt, expected: list[bytes]
) -> None:
    await filled(client, stream_name)
    await client.pause_stream(stream_name)

    async with client.subscribe(
        stream_name, partition=0, start=start, unpause=True
    ) as subscription:
        await client.publish(stream_name, b"new")
        assert values(await take(subscription, len(expected))) == expected


async def test_a_bounded_reader_may_resume_what_it_reads(client: Client, stream_name: str) -> None:
    await filled(client, stream_name)
    await client.pause_stream(stream_name)

    reading = client.subscribe(stream_name, partition=0, start=EARLIEST, stop=LATEST, unpause=True)
    assert values(await rest(reading)) == LETTERS
    assert reading.end_reason is EndReason.STOP_REACHED


# What is not there


@pytest.mark.parametrize("entered", [True, False], ids=["entered", "bare"])
async def test_an_unknown_stream_is_named_at_the_first_step(
    impatient: Client, stream_name: str, entered: bool
) -> None:
    subscription = impatient.subscribe(stream_name, partition=0)
    async with asyncio.timeout(4):
        with pytest.raises(StreamNotFound, match=stream_name) as refused:
            await (subscription.__aenter__() if entered else anext(subscription))
    assert refused.value.stream == stream_name
    assert len(impatient.statistics().subscriptions) == 0


@pytest.mark.parametrize("entered", [True, False], ids=["entered", "bare"])
async def test_an_unknown_partition_is_not_waited_for(
    client: Client, stream_name: str, entered: bool
) -> None:
    await client.create_stream(stream_name, partitions=2)
    subscription = client.subscribe(stream_name, partition=2)

    async with asyncio.timeout(4):
        with pytest.raises(PartitionNotFound) as refused:
            await (subscription.__aenter__() if entered else anext(subscription))
    assert (refused.value.stream, refused.value.partition) == (stream_name, 2)


async def test_a_stream_can_be_read_as_soon_as_it_is_created(
    client: Client, wire: Wire, stream_name: str
) -> None:
    async with asyncio.TaskGroup() as group:
        reading = group.create_task(
            take(client.subscribe(stream_name, partition=0, start=EARLIEST), 1)
        )
        await wire.create(stream_name)
        await client.publish(stream_name, b"value")
    assert values(reading.result()) == [b"value"]


@pytest.mark.parametrize("start", [StartAt.latest(), StartAt.offset(1)])
async def test_servers_that_cannot_read_backwards_are_found_out(
    client: Client, stream_name: str, start: StartAt
) -> None:
    await filled(client, stream_name)

    with pytest.raises(UnsupportedByServer, match="reverse") as refused:
        async with client.subscribe(
            stream_name, partition=0, start=start, reverse=True
        ) as subscription:
            await take(subscription, 1)
    assert (refused.value.stream, refused.value.partition) == (stream_name, 0)


# Closing, and what the hook hears


async def test_closing_the_client_ends_the_loop_of_a_reader(
    server: Server, stream_name: str
) -> None:
    client = Client(server.address)
    await client.connect()
    await filled(client, stream_name)
    subscription = client.subscribe(stream_name, partition=0, start=EARLIEST)
    reading = asyncio.create_task(rest(subscription))

    async def all_taken() -> bool:
        return subscription.statistics().delivered == 3

    await eventually(all_taken)
    await client.aclose()
    assert values(await reading) == LETTERS
    assert subscription.end_reason is EndReason.CLOSED


async def test_the_hook_hears_of_links_and_of_the_life_of_a_reading(
    server: Server, stream_name: str
) -> None:
    watcher = Watcher()
    async with Client(server.address, options=ClientOptions(hook=watcher)) as client:
        await filled(client, stream_name)
        async with client.subscribe(
            stream_name, partition=0, start=StartAt.offset(1), stop=LATEST
        ) as subscription:
            await rest(subscription)
        with pytest.raises(LiftbridgeError):
            await take(client.subscribe(stream_name, partition=7), 1)

    assert {(link.address, link.purpose) for link in watcher.links} == {
        (server.address, "control"),
        (server.address, "publish"),
        (server.address, "subscribe"),
    }
    assert watcher.refreshed
    assert watcher.refreshed[0].brokers == 1
    [event] = watcher.subscriptions
    assert (event.stream, event.partition, event.address, event.start_offset) == (
        stream_name,
        0,
        server.address,
        1,
    )
    orderly, refused = watcher.ends
    assert (orderly.partition, orderly.reason, orderly.error) == (0, EndReason.STOP_REACHED, None)
    assert (refused.partition, refused.reason) == (7, None)
    assert isinstance(refused.error, PartitionNotFound)


async def test_after_a_resume_there_is_nothing_special_about_a_partition(
    client: Client, stream_name: str
) -> None:
    await filled(client, stream_name)
    await client.pause_stream(stream_name)
    await client.resume_stream(stream_name)

    assert await stored(client, stream_name, 3) == LETTERS
