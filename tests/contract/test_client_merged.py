"""Several partitions read as one."""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import Sequence
from typing import Any

import pytest

from liftbridge_aio import (
    Client,
    ClientOptions,
    ConcurrentRead,
    EndReason,
    InvalidRequest,
    Message,
    PartitionNotFound,
    PartitionPaused,
    RawMessage,
    Record,
    StartAt,
    StopAt,
    StreamDeleted,
    StreamNotFound,
    UsageError,
    WrongType,
)
from support.clients import EARLIEST, LATEST, Delivered, rest, take
from support.marks import ON_EMBEDDED, ON_ONE_PATH
from support.raw import BOUND, eventually
from support.servers.node import Server

pytestmark = ON_ONE_PATH

PARTITIONS = 4
COUNT = 40
PER_PARTITION = COUNT // PARTITIONS


@pytest.fixture
async def numbers(client: Client, stream_name: str) -> str:
    """A stream of some partitions; each holds its share of the numbers."""
    await client.create_stream(stream_name, partitions=PARTITIONS)
    await client.publish_many(
        stream_name, [Record(b"%d" % n, partition=n % PARTITIONS) for n in range(COUNT)]
    )
    return stream_name


def offsets(messages: Sequence[Message | RawMessage]) -> dict[int, list[int]]:
    """Return the offsets read of each partition, in the order of delivery."""
    found: dict[int, list[int]] = {}
    for message in messages:
        found.setdefault(message.partition, []).append(message.offset)
    return found


EVERYTHING = {partition: list(range(PER_PARTITION)) for partition in range(PARTITIONS)}


async def test_all_partitions_are_read_each_in_order(client: Client, numbers: str) -> None:
    subscription = client.subscribe(numbers, start=EARLIEST, stop=LATEST)
    messages = await rest(subscription)
    assert offsets(messages) == EVERYTHING
    assert sorted(int(message.value) for message in messages) == list(range(COUNT))
    assert {message.stream for message in messages} == {numbers}
    assert subscription.end_reasons == dict.fromkeys(range(PARTITIONS), EndReason.STOP_REACHED)
    assert subscription.statistics().delivered == COUNT
    assert len(client.statistics().subscriptions) == 0


async def test_only_the_partitions_that_are_named_are_read(client: Client, numbers: str) -> None:
    async with client.subscribe(
        numbers, partition=[2, 1], start=EARLIEST, stop=LATEST
    ) as subscription:
        assert subscription.partitions == (2, 1)
        assert offsets(await rest(subscription)) == {n: EVERYTHING[n] for n in (1, 2)}


async def test_each_partition_may_have_a_start_of_its_own(client: Client, numbers: str) -> None:
    starts = {0: StartAt.offset(7), 1: EARLIEST, 2: StartAt.latest(), 3: StartAt.offset(9)}
    async with client.subscribe(numbers, start=starts, stop=LATEST) as subscription:
        assert subscription.positions == {0: 7, 1: subscription.positions[1], 2: 9, 3: 9}
        found = offsets(await rest(subscription))
    assert found == {0: [7, 8, 9], 1: EVERYTHING[1], 2: [9], 3: [9]}


async def test_starts_are_fixed_on_entering(client: Client, numbers: str) -> None:
    async with client.subscribe(numbers) as subscription:
        assert subscription.positions == dict.fromkeys(range(PARTITIONS), PER_PARTITION)
        await client.publish_many(numbers, [Record(b"new", partition=n) for n in range(PARTITIONS)])
        messages = await take(subscription, PARTITIONS)
    assert offsets(messages) == {n: [PER_PARTITION] for n in range(PARTITIONS)}


@pytest.mark.parametrize("raw", [False, True])
async def test_lists_hold_messages_of_all_partitions(
    client: Client, numbers: str, raw: bool
) -> None:
    messages: list[Message] = []
    async with (
        asyncio.timeout(BOUND),
        client.subscribe(numbers, start=EARLIEST, stop=LATEST) as subscription,
    ):
        async for batch in subscription.batches(max_size=7, wait=0.1, raw=raw):
            assert 0 < len(batch) <= 7
            messages += [one.decode() if isinstance(one, RawMessage) else one for one in batch]
    assert offsets(messages) == EVERYTHING


@ON_EMBEDDED
async def test_reading_one_by_one_and_in_lists_may_take_turns(client: Client, numbers: str) -> None:
    messages: list[Message] = []
    async with (
        asyncio.timeout(BOUND),
        client.subscribe(numbers, start=EARLIEST, stop=LATEST) as subscription,
    ):
        while len(messages) < COUNT:
            messages.append(await anext(subscription))
            async for batch in subscription.batches(3):
                messages += batch
                break
    assert offsets(messages) == EVERYTHING


async def test_a_missing_stream_or_partition_is_told_on_entering(
    client: Client, numbers: str
) -> None:
    with pytest.raises(PartitionNotFound) as caught:
        async with client.subscribe(numbers, partition=[0, 9]):
            pass
    assert (caught.value.stream, caught.value.partition) == (numbers, 9)
    assert len(client.statistics().subscriptions) == 0


async def test_a_missing_stream_is_told_on_entering(impatient: Client) -> None:
    with pytest.raises(StreamNotFound) as caught:
        async with impatient.subscribe("no-such-stream"):
            pass
    assert caught.value.stream == "no-such-stream"


NONSENSE: list[tuple[Any, Any]] = [
    ([], EARLIEST),
    ([1, 1], EARLIEST),
    ([-1], EARLIEST),
    ("01", EARLIEST),
    ([0, 1], {0: EARLIEST}),
    ([0], {0: 5}),
    (None, {}),
    (0, {0: EARLIEST}),
]


@ON_EMBEDDED
async def test_partitions_and_starts_that_make_no_sense_are_refused(client: Client) -> None:
    for partition, start in NONSENSE:
        with pytest.raises(InvalidRequest):
            client.subscribe("stream", partition=partition, start=start)


async def test_an_offset_in_several_partitions_is_refused(client: Client, numbers: str) -> None:
    at = StartAt.offset(5)
    for ends in ({"start": at}, {"start": EARLIEST, "stop": StopAt.offset(5)}):
        with pytest.raises(InvalidRequest, match=r"the stream has 4: name it with partition="):
            await rest(client.subscribe(numbers, **ends))
    with pytest.raises(InvalidRequest, match="the stream has 4 partitions"):
        await client.last(numbers, n=1)
    async with client.subscribe(numbers, start=EARLIEST) as subscription:
        for place in (5, at):
            with pytest.raises(InvalidRequest, match="place in one partition"):
                await subscription.seek(place)
        assert offsets(await take(subscription, COUNT)) == EVERYTHING


@ON_EMBEDDED
async def test_a_stream_of_one_partition_needs_no_number(client: Client, stream_name: str) -> None:
    await client.create_stream(stream_name)
    await client.publish_many(stream_name, [b"0", b"1", b"2"])
    at = StartAt.offset(1)
    messages = await rest(client.subscribe(stream_name, start=at, stop=StopAt.offset(1)))
    assert [message.value for message in messages] == [b"1"]
    assert [message.value for message in await client.last(stream_name, n=2)] == [b"1", b"2"]
    async with client.subscribe(stream_name) as subscription:
        await subscription.seek(2)
        assert (await take(subscription, 1))[0].value == b"2"


async def test_one_partition_that_breaks_leaves_the_others(client: Client, numbers: str) -> None:
    async with client.subscribe(numbers, start=EARLIEST) as subscription:
        assert offsets(await take(subscription, COUNT)) == EVERYTHING
        await client.pause_stream(numbers, [1])
        with pytest.raises(PartitionPaused) as caught:
            await take(subscription, 1)
        assert (caught.value.stream, caught.value.partition) == (numbers, 1)
        assert subscription.errors == {1: caught.value}
        await client.publish(numbers, b"on", partition=3)
        assert [message.value for message in await take(subscription, 1)] == [b"on"]
        # And the broken one is taken up again where it was.
        await client.publish(numbers, b"again", partition=1)
        await subscription.seek({1: PER_PARTITION})
        assert [message.value for message in await take(subscription, 1)] == [b"again"]
        assert subscription.errors == {}


async def test_the_end_of_all_partitions_is_the_end(client: Client, numbers: str) -> None:
    async with client.subscribe(numbers, start=EARLIEST) as subscription:
        await client.set_stream_readonly(numbers, [0, 1, 2])
        await take(subscription, COUNT)
        reading = asyncio.create_task(rest(subscription))
        await eventually(lambda: len(subscription.end_reasons) == PARTITIONS - 1)
        assert not reading.done()
        await client.set_stream_readonly(numbers, [3])
        assert await reading == []
    assert subscription.end_reasons == dict.fromkeys(range(PARTITIONS), EndReason.READONLY)


async def test_a_stream_that_is_deleted_is_told_for_each_partition(
    client: Client, numbers: str
) -> None:
    async with client.subscribe(numbers, partition=[0, 1], start=EARLIEST) as subscription:
        await take(subscription, 2 * PER_PARTITION)
        await client.delete_stream(numbers)
        for _ in range(2):
            with pytest.raises(StreamDeleted):
                await take(subscription, 1)
        assert await rest(subscription) == []
    assert sorted(subscription.errors) == [0, 1]


# Elsewhere, and later


async def test_a_seek_moves_the_partitions_that_it_names(client: Client, numbers: str) -> None:
    async with client.subscribe(numbers, start=EARLIEST) as subscription:
        assert offsets(await take(subscription, COUNT)) == EVERYTHING
        reading = asyncio.create_task(take(subscription, 3))
        await asyncio.sleep(0)
        await subscription.seek({0: 8, 2: StartAt.latest()})
        assert offsets(await reading) == {0: [8, 9], 2: [9]}
        await subscription.seek(StartAt.earliest())
        assert offsets(await take(subscription, COUNT)) == EVERYTHING
        assert subscription.positions == dict.fromkeys(range(PARTITIONS), PER_PARTITION)
        assert subscription.statistics().delivered == 2 * COUNT + 3
        assert subscription.end_reasons == {}
        with pytest.raises(InvalidRequest):
            await subscription.seek({7: 0})
    with pytest.raises(UsageError):
        await subscription.seek(0)


@ON_EMBEDDED
async def test_a_seek_that_makes_no_sense_changes_nothing(client: Client, numbers: str) -> None:
    async with client.subscribe(
        numbers, partition=[0, 1], start=EARLIEST, stop=StopAt.offset(5)
    ) as subscription:
        await take(subscription, 4)
        with pytest.raises(InvalidRequest):
            await subscription.seek({0: 2, 1: 6})
        assert len(await rest(subscription)) == 2 * 6 - 4


@ON_EMBEDDED
async def test_before_entering_there_are_no_partitions_to_pause(
    client: Client, numbers: str
) -> None:
    subscription = client.subscribe(numbers)
    assert (subscription.partitions, subscription.positions) == ((), {})
    assert subscription.statistics().delivered == 0
    for act in (subscription.pause, subscription.resume):
        with pytest.raises(UsageError):
            act()
    with pytest.raises(UsageError):
        await subscription.seek(0)
    with pytest.raises(UsageError):
        await subscription.lag()
    named = client.subscribe(numbers, partition=[0, 1], start=EARLIEST, stop=LATEST)
    named.pause([1])
    await named.seek({0: 8})
    assert offsets(await take(named, 2)) == {0: [8, 9]}
    named.resume()
    assert offsets(await rest(named)) == {1: EVERYTHING[1]}


async def test_paused_partitions_hand_nothing_out(client: Client, numbers: str) -> None:
    async with client.subscribe(numbers, start=EARLIEST, stop=LATEST) as subscription:
        with pytest.raises(WrongType):
            subscription.pause(1)  # type: ignore[arg-type]
        subscription.pause([0, 3])
        assert subscription.paused == {0, 3}
        found = offsets(await take(subscription, 2 * PER_PARTITION))
        assert found == {n: EVERYTHING[n] for n in (1, 2)}
        reading = asyncio.create_task(rest(subscription))
        await asyncio.sleep(0)
        subscription.resume([3])
        subscription.pause()
        subscription.resume()
        assert offsets(await reading) == {n: EVERYTHING[n] for n in (0, 3)}


@ON_EMBEDDED
async def test_a_paused_partition_stays_paused_over_a_seek(client: Client, numbers: str) -> None:
    async with client.subscribe(numbers, partition=[0, 1], start=EARLIEST) as subscription:
        subscription.pause([0])
        await subscription.seek({0: 5, 1: 9})
        assert offsets(await take(subscription, 1)) == {1: [9]}
        await client.publish(numbers, b"new", partition=1)
        assert offsets(await take(subscription, 1)) == {1: [10]}
        subscription.resume([0])
        assert offsets(await take(subscription, 5)) == {0: [5, 6, 7, 8, 9]}


async def test_the_lag_of_each_partition_is_known(client: Client, numbers: str) -> None:
    starts = dict.fromkeys(range(PARTITIONS), StartAt.offset(4))
    async with client.subscribe(numbers, start=starts) as subscription:
        await take(subscription, 6 * PARTITIONS)
        assert await subscription.lag() == dict.fromkeys(range(PARTITIONS), 0)
        await client.publish(numbers, b"new", partition=2)
        await take(subscription, 1)
        await subscription.seek({2: 8})
        assert await subscription.lag() == {0: 0, 1: 0, 2: 3, 3: 0}


# The end


@ON_EMBEDDED
async def test_leaving_ends_it_whatever_is_unread(client: Client, numbers: str) -> None:
    async with client.subscribe(numbers, start=EARLIEST) as subscription:
        await take(subscription, 5)
    assert len(client.statistics().subscriptions) == 0
    assert subscription.end_reasons == dict.fromkeys(range(PARTITIONS), EndReason.CLOSED)
    assert await rest(subscription) == []
    async with asyncio.timeout(BOUND):
        await asyncio.gather(subscription.aclose(), subscription.aclose())


@ON_EMBEDDED
async def test_closing_wakes_the_one_who_reads(client: Client, numbers: str) -> None:
    subscription = client.subscribe(numbers)
    reading = asyncio.create_task(rest(subscription))

    async def all_are_read() -> bool:
        return len(client.statistics().subscriptions) == PARTITIONS

    await eventually(all_are_read)
    await subscription.aclose()
    assert await reading == []


@ON_EMBEDDED
async def test_closing_wakes_the_one_who_gathers_a_list(client: Client, numbers: str) -> None:
    subscription = client.subscribe(numbers, start=EARLIEST)
    gathering = asyncio.create_task(anext(subscription.batches(2 * COUNT, wait=10 * BOUND)))
    await eventually(lambda: subscription.statistics().buffered == COUNT)
    await subscription.aclose()
    async with asyncio.timeout(BOUND):
        await asyncio.wait([gathering])
    assert isinstance(gathering.exception(), StopAsyncIteration)


@ON_EMBEDDED
async def test_two_that_begin_it_at_once_begin_the_same(client: Client, numbers: str) -> None:
    subscription = client.subscribe(numbers, start=EARLIEST)
    reading = asyncio.create_task(take(subscription, COUNT))
    async with subscription:
        assert len(await reading) == COUNT
        assert len(client.statistics().subscriptions) == PARTITIONS
        assert await subscription.lag() == dict.fromkeys(range(PARTITIONS), 0)
        await subscription.seek(dict.fromkeys(range(PARTITIONS), PER_PARTITION - 1))
        again = await take(subscription, PARTITIONS)
        assert offsets(again) == {n: [PER_PARTITION - 1] for n in range(PARTITIONS)}
    assert len(client.statistics().subscriptions) == 0


@ON_EMBEDDED
async def test_cancelling_loses_no_message(client: Client, numbers: str) -> None:
    async with client.subscribe(numbers) as subscription:
        messages = []
        for number in range(PARTITIONS):
            waiting = asyncio.create_task(anext(subscription))
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.wait([waiting])
            if not waiting.cancelled():
                messages.append(waiting.result())
            await client.publish(numbers, b"%d" % number, partition=number)
        messages += await take(subscription, PARTITIONS - len(messages))
    assert offsets(messages) == {n: [PER_PARTITION] for n in range(PARTITIONS)}


@ON_EMBEDDED
async def test_two_cannot_wait_at_once(client: Client, numbers: str) -> None:
    async with client.subscribe(numbers) as subscription:
        waiting = asyncio.create_task(anext(subscription))
        await asyncio.sleep(0)
        with pytest.raises(ConcurrentRead):
            await anext(subscription)
        waiting.cancel()


@ON_EMBEDDED
async def test_a_bare_loop_left_by_break_ends_it(client: Client, numbers: str) -> None:
    async for _ in client.subscribe(numbers, start=EARLIEST):
        assert len(client.statistics().subscriptions) == PARTITIONS
        break
    gc.disable()  # dropping it is enough; nobody has to look for cycles
    try:
        await eventually(lambda: len(client.statistics().subscriptions) == 0)
    finally:
        gc.enable()


@ON_EMBEDDED
async def test_one_that_is_entered_and_dropped_warns(client: Client, numbers: str) -> None:
    subscription = client.subscribe(numbers, start=EARLIEST)
    await subscription.__aenter__()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        del subscription
        gc.collect()
    assert [one.category for one in caught] == [ResourceWarning]
    assert "never left" in str(caught[0].message)


@ON_EMBEDDED
async def test_one_whose_client_is_closed_ends(server: Server, numbers: str) -> None:
    async with Client(server.address) as other:
        subscription = other.subscribe(numbers)
        reading = asyncio.create_task(rest(subscription))

        async def all_are_read() -> bool:
            return len(other.statistics().subscriptions) == PARTITIONS

        await eventually(all_are_read)
    async with asyncio.timeout(BOUND):
        assert await reading == []


@ON_EMBEDDED
async def test_the_hook_is_told_of_each_message(server: Server, numbers: str) -> None:
    hook = Delivered()
    async with Client(server.address, options=ClientOptions(hook=hook)) as other:
        read = await rest(other.subscribe(numbers, start=EARLIEST, stop=LATEST))
    assert hook.messages == read
    assert len(read) == COUNT
