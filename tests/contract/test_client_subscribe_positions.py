"""The start and stop positions of subscriptions through the client."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

import pytest

from liftbridge_aio import (
    AckPolicy,
    Client,
    EndReason,
    InvalidRequest,
    Message,
    StartAt,
    StopAt,
)
from support.clients import EARLIEST, LATEST, rest, stored, take, values
from support.raw import BOUND, Wire
from support.segments import begins_empty_segment, create

LETTERS = [b"a", b"b", b"c", b"d", b"e"]
LONG = 100_000_000
"""Nanoseconds, and far more than clocks that are read one after the other differ."""


async def filled(client: Client, stream: str) -> list[int]:
    """Create a stream with five messages and return their times."""
    await client.create_stream(stream)
    acks = await client.publish_many(stream, LETTERS)
    return [ack.reception_timestamp for ack in acks]


async def outcome(
    client: Client, stream: str, start: StartAt, stop: StopAt
) -> tuple[str, EndReason | None]:
    """Return the values of a bounded subscription, and its end reason."""
    async with client.subscribe(stream, partition=0, start=start, stop=stop) as subscription:
        messages = await rest(subscription)
    return b"".join(values(messages)).decode(), subscription.end_reason


# Starts


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        pytest.param(StartAt.new_only(), "new", id="new_only"),
        pytest.param(StartAt.latest(), "enew", id="latest"),
        pytest.param(StartAt.earliest(), "abcdenew", id="earliest"),
        pytest.param(StartAt.offset(0), "abcdenew", id="0"),
        pytest.param(StartAt.offset(3), "denew", id="3"),
        pytest.param(StartAt.offset(5), "new", id="next"),
        pytest.param(StartAt.time(0), "abcdenew", id="1970"),
        pytest.param(StartAt.time(2**63 - 1), "new", id="2262"),
        pytest.param(StartAt.ago(timedelta(days=1)), "abcdenew", id="a-day-ago"),
    ],
)
async def test_a_tail_begins_where_it_was_told_to(
    client: Client, stream_name: str, start: StartAt, expected: str
) -> None:
    await filled(client, stream_name)

    async with client.subscribe(stream_name, partition=0, start=start) as subscription:
        await client.publish(stream_name, b"new")
        messages = await take(subscription, 1 + len(expected.removesuffix("new")))
    assert b"".join(values(messages)).decode() == expected
    first = 6 - len(messages)
    assert [message.offset for message in messages] == list(range(first, 6))


async def test_a_tail_begins_with_what_is_new_unless_told(client: Client, stream_name: str) -> None:
    await filled(client, stream_name)

    async with client.subscribe(stream_name, partition=0) as subscription:
        await client.publish(stream_name, b"new")
        assert values(await take(subscription, 1)) == [b"new"]


@pytest.mark.parametrize(
    "start",
    [
        pytest.param(StartAt.new_only(), id="new_only"),
        pytest.param(StartAt.latest(), id="latest"),
        pytest.param(StartAt.earliest(), id="earliest"),
        pytest.param(StartAt.offset(0), id="0"),
        pytest.param(StartAt.time(0), id="1970"),
        pytest.param(StartAt.ago(timedelta(0)), id="now"),
    ],
)
async def test_a_tail_of_an_empty_stream_begins_with_its_first_message(
    client: Client, stream_name: str, start: StartAt
) -> None:
    await client.create_stream(stream_name)

    async with client.subscribe(stream_name, partition=0, start=start) as subscription:
        await client.publish_many(stream_name, LETTERS)
        assert values(await take(subscription, 5)) == LETTERS


async def test_a_start_beyond_the_end_waits_for_that_very_offset(
    client: Client, stream_name: str
) -> None:
    await filled(client, stream_name)

    async with client.subscribe(stream_name, partition=0, start=StartAt.offset(7)) as subscription:
        await client.publish_many(stream_name, [b"5", b"6", b"7", b"8"])
        assert [(m.offset, m.value) for m in await take(subscription, 2)] == [(7, b"7"), (8, b"8")]
        assert subscription.statistics().delivered == 2


async def test_a_time_is_found_between_messages(client: Client, stream_name: str) -> None:
    times = await filled(client, stream_name)

    for wanted, start in [
        (LETTERS, StartAt.time(times[0] - LONG)),
        (LETTERS[2:], StartAt.time(times[2])),
        (LETTERS[3:], StartAt.time(times[2] + 1)),
        (LETTERS, StartAt.time(datetime.fromtimestamp(times[0] / 1e9 - 1, UTC))),
    ]:
        async with client.subscribe(
            stream_name, partition=0, start=start, stop=LATEST
        ) as subscription:
            assert values(await rest(subscription)) == wanted


async def test_a_time_is_found_at_the_boundaries_of_segments(
    client: Client, wire: Wire, cleaned_stream: str
) -> None:
    """Servers answer with the end of the log for a time between the last two segments."""
    await create(wire, cleaned_stream, segment_bytes=1, cleaner_interval=60_000)
    acks = await client.publish_many(cleaned_stream, LETTERS)
    times = [ack.reception_timestamp for ack in acks]

    for n in range(1, 5):
        start = StartAt.time(times[n - 1] + 1)
        async with client.subscribe(
            cleaned_stream, partition=0, start=start, stop=LATEST
        ) as subscription:
            assert values(await rest(subscription)) == LETTERS[n:]
        async with client.subscribe(cleaned_stream, partition=0, start=start) as subscription:
            assert values(await take(subscription, 5 - n)) == LETTERS[n:]


async def test_a_time_is_found_before_an_empty_segment(
    client: Client, wire: Wire, cleaned_stream: str
) -> None:
    """Servers answer with the end of the log for some times then, or all."""
    await create(wire, cleaned_stream, segment_bytes=1)
    acks = await client.publish_many(cleaned_stream, LETTERS)
    await begins_empty_segment(wire, cleaned_stream, 4, acks[4].reception_timestamp)

    for n in range(5):
        start = StartAt.time(acks[n].reception_timestamp)
        async with client.subscribe(
            cleaned_stream, partition=0, start=start, stop=LATEST
        ) as subscription:
            assert values(await rest(subscription)) == LETTERS[n:]
    async with client.subscribe(
        cleaned_stream, partition=0, start=StartAt.time(acks[4].commit_timestamp + LONG)
    ) as subscription:
        await client.publish(cleaned_stream, b"new")
        assert values(await take(subscription, 1)) == [b"new"]


async def test_ago_counts_from_the_start_of_the_reading(client: Client, stream_name: str) -> None:
    await client.create_stream(stream_name)
    start = StartAt.ago(timedelta(seconds=0.2))
    await client.publish(stream_name, b"old")
    await asyncio.sleep(0.3)  # the age of a message is a matter of time, nothing else

    async with client.subscribe(stream_name, partition=0, start=start) as subscription:
        await client.publish(stream_name, b"new")
        assert values(await take(subscription, 1)) == [b"new"]


@pytest.mark.parametrize("make", [StartAt.time, StopAt.time])
async def test_a_time_without_zone_is_refused(make: Callable[[datetime], object]) -> None:
    with pytest.raises(InvalidRequest, match="no time zone"):
        make(datetime(2026, 1, 1))  # noqa: DTZ001 - the point of the test


async def test_new_only_is_exact(client: Client, wire: Wire, stream_name: str) -> None:
    """Whoever has entered sees all that is published then, and nothing from before."""
    await client.create_stream(stream_name)

    for n in range(20):
        await client.publish(stream_name, b"before")
        async with client.subscribe(stream_name, partition=0) as subscription:
            [ack] = await wire.publish(stream_name, b"%d" % n)
            [message] = await take(subscription, 1)
            assert (message.value, message.offset) == (b"%d" % n, ack.offset)


async def test_new_only_is_exact_while_others_publish(client: Client, stream_name: str) -> None:
    await client.create_stream(stream_name)

    async def publish() -> int:
        ack = await client.publish(stream_name, b"")
        assert ack is not None
        return ack.offset

    async def keep_publishing() -> None:
        while True:
            await asyncio.gather(*(publish() for _ in range(20)))

    publishing = asyncio.create_task(keep_publishing())
    try:
        for _ in range(10):
            before = await publish()
            async with client.subscribe(stream_name, partition=0) as subscription:
                after = await publish()
                offsets = [(await take(subscription, 1))[0].offset]
                assert before < offsets[0] <= after
                while offsets[-1] < after:
                    offsets.append((await take(subscription, 1))[0].offset)
            assert offsets == list(range(offsets[0], after + 1))
    finally:
        publishing.cancel()
        await asyncio.gather(publishing, return_exceptions=True)


# Stops


@pytest.mark.parametrize(
    ("start", "stop", "expected"),
    [
        pytest.param(EARLIEST, LATEST, "abcde", id="earliest-latest"),
        pytest.param(EARLIEST, StopAt.offset(0), "a", id="earliest-0"),
        pytest.param(EARLIEST, StopAt.offset(2), "abc", id="earliest-2"),
        pytest.param(StartAt.offset(2), StopAt.offset(2), "c", id="2-2"),
        pytest.param(StartAt.offset(2), StopAt.offset(4), "cde", id="2-4"),
        pytest.param(StartAt.offset(4), LATEST, "e", id="4-latest"),
        pytest.param(StartAt.latest(), LATEST, "e", id="latest-latest"),
        pytest.param(StartAt.latest(), StopAt.offset(4), "e", id="latest-4"),
        pytest.param(StartAt.time(0), LATEST, "abcde", id="1970-latest"),
        pytest.param(StartAt.time(0), StopAt.offset(1), "ab", id="1970-1"),
        pytest.param(StartAt.new_only(), LATEST, "", id="new_only-latest"),
        pytest.param(StartAt.offset(9), LATEST, "", id="beyond-latest"),
        pytest.param(StartAt.latest(), StopAt.offset(2), "", id="latest-2"),
        pytest.param(StartAt.new_only(), StopAt.offset(2), "", id="new_only-2"),
        pytest.param(StartAt.time(2**63 - 1), LATEST, "", id="2262-latest"),
        pytest.param(StartAt.time(2**63 - 1), StopAt.offset(2), "", id="2262-2"),
    ],
)
async def test_a_bounded_reading_ends_by_itself(
    client: Client, stream_name: str, start: StartAt, stop: StopAt, expected: str
) -> None:
    await filled(client, stream_name)

    assert await outcome(client, stream_name, start, stop) == (expected, EndReason.STOP_REACHED)


@pytest.mark.parametrize("start", [EARLIEST, StartAt.latest(), StartAt.new_only(), StartAt.time(0)])
@pytest.mark.parametrize("stop", [LATEST, StopAt.time(1)], ids=["latest", "time"])
async def test_a_bounded_reading_of_an_empty_stream_is_empty(
    client: Client, stream_name: str, start: StartAt, stop: StopAt
) -> None:
    await client.create_stream(stream_name)

    assert await outcome(client, stream_name, start, stop) == ("", EndReason.EMPTY)


async def test_a_stop_ahead_is_waited_for(client: Client, stream_name: str) -> None:
    await filled(client, stream_name)

    async with client.subscribe(
        stream_name, partition=0, start=StartAt.offset(3), stop=StopAt.offset(6)
    ) as subscription:
        assert values(await take(subscription, 2)) == [b"d", b"e"]
        await client.publish_many(stream_name, [b"f", b"g", b"h"])
        assert values(await rest(subscription)) == [b"f", b"g"]
    assert subscription.end_reason is EndReason.STOP_REACHED


async def test_the_latest_is_that_of_the_start_of_the_reading(
    client: Client, stream_name: str
) -> None:
    await filled(client, stream_name)

    async with client.subscribe(
        stream_name, partition=0, start=EARLIEST, stop=LATEST
    ) as subscription:
        await client.publish_many(stream_name, [b"later"] * 10)
        assert values(await rest(subscription)) == LETTERS


@pytest.mark.parametrize("last", [-LONG, 0, 1, LONG], ids=["before", "at", "after", "all"])
async def test_a_stop_time_is_the_last_that_is_read(
    client: Client, stream_name: str, last: int
) -> None:
    await client.create_stream(stream_name)
    times = []
    for value in LETTERS:  # one after the other, so that no two have the same time
        ack = await client.publish(stream_name, value)
        assert ack is not None
        times.append(ack.reception_timestamp)
    await asyncio.sleep(LONG / 1e9)  # a stop in the future is refused

    stop = times[2] + last
    wanted = [value for value, moment in zip(LETTERS, times, strict=True) if moment <= stop]
    assert await outcome(client, stream_name, EARLIEST, StopAt.time(stop)) == (
        b"".join(wanted).decode(),
        EndReason.STOP_REACHED,
    )


async def test_a_stop_time_before_the_first_message_reads_nothing(
    client: Client, stream_name: str
) -> None:
    await filled(client, stream_name)

    assert await outcome(client, stream_name, EARLIEST, StopAt.time(1)) == (
        "",
        EndReason.STOP_REACHED,
    )


async def test_times_can_bound_both_ends(client: Client, stream_name: str) -> None:
    await client.create_stream(stream_name)
    times = []
    for value in LETTERS:
        ack = await client.publish(stream_name, value)
        assert ack is not None
        times.append(ack.reception_timestamp)

    start, stop = StartAt.time(times[1]), StopAt.time(times[3])
    assert await outcome(client, stream_name, start, stop) == ("bcd", EndReason.STOP_REACHED)


@pytest.mark.parametrize(
    "moment",
    [
        lambda: time.time_ns() + 3600 * 10**9,
        lambda: datetime.now(UTC) + timedelta(hours=1),
    ],
)
async def test_a_stop_time_in_the_future_is_refused(
    client: Client, stream_name: str, moment: Callable[[], int | datetime]
) -> None:
    with pytest.raises(InvalidRequest, match="past"):
        client.subscribe(stream_name, partition=0, stop=StopAt.time(moment()))


async def test_a_stop_before_the_start_is_refused(client: Client, stream_name: str) -> None:
    with pytest.raises(InvalidRequest, match="stop offset 2") as refused:
        client.subscribe(stream_name, partition=0, start=StartAt.offset(3), stop=StopAt.offset(2))
    assert (refused.value.stream, refused.value.partition) == (stream_name, 0)


async def test_a_bounded_reading_of_one_partition_is_not_bothered_by_another(
    client: Client, stream_name: str
) -> None:
    await client.create_stream(stream_name, partitions=2)
    await client.publish(stream_name, b"other", partition=0)

    async with client.subscribe(
        stream_name, partition=1, start=EARLIEST, stop=LATEST
    ) as subscription:
        assert await rest(subscription) == []
    assert subscription.end_reason is EndReason.EMPTY


async def test_a_long_reading_is_complete_and_in_order(client: Client, stream_name: str) -> None:
    await client.create_stream(stream_name)
    wanted = [b"%d" % n for n in range(1000)]
    for value in wanted:
        await client.publish_async(stream_name, value, ack_policy=AckPolicy.NONE)
    await client.flush()
    assert await stored(client, stream_name, 1000) == wanted


async def test_readings_side_by_side_do_not_disturb_each_other(
    client: Client, stream_name: str
) -> None:
    await client.create_stream(stream_name, partitions=3)
    received: dict[int, list[Message]] = {n: [] for n in range(9)}

    async def read(number: int, entered: Callable[[], Awaitable[object]]) -> None:
        async with client.subscribe(stream_name, partition=number % 3) as subscription:
            await entered()
            received[number] = await take(subscription, 50)

    barrier = asyncio.Barrier(10)
    async with asyncio.timeout(BOUND), asyncio.TaskGroup() as group:
        for number in range(9):
            group.create_task(read(number, barrier.wait))
        await barrier.wait()
        for n in range(150):
            await client.publish_async(stream_name, b"%d" % (n // 3), partition=n % 3)
    for messages in received.values():
        assert values(messages) == [b"%d" % n for n in range(50)]
