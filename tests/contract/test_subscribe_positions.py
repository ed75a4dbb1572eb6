"""The start and stop positions of a subscription."""

from __future__ import annotations

import time
from typing import Any, Final

import pytest
from grpclib.const import Status

from liftbridge_aio.wire import proto
from support.raw import FROM_EARLIEST, STOP_REACHED, TO_LATEST, End, Ended, Wire

Start, Stop = proto.StartPosition, proto.StopPosition
COUNT: Final = 10
NEW_ONLY: Final = {"start_position": Start.NEW_ONLY}
LATEST: Final = {"start_position": Start.LATEST}


def from_offset(offset: int) -> dict[str, Any]:
    return {"start_position": Start.OFFSET, "start_offset": offset}


def from_time(timestamp: int) -> dict[str, Any]:
    return {"start_position": Start.TIMESTAMP, "start_timestamp": timestamp}


def to_offset(offset: int) -> dict[str, Any]:
    return {"stop_position": Stop.STOP_OFFSET, "stop_offset": offset}


def to_time(timestamp: int) -> dict[str, Any]:
    return {"stop_position": Stop.STOP_TIMESTAMP, "stop_timestamp": timestamp}


def backwards(stop: int, start: int) -> End:
    return End(Status.INVALID_ARGUMENT, f"Stop offset is before start offset: {stop} < {start}")


def no_such_time(reason: str) -> End:
    return End(Status.INTERNAL, f"Failed to lookup offset for timestamp: {reason}")


STREAM_EMPTY: Final = End(Status.RESOURCE_EXHAUSTED, "Stream is empty")
EMPTY_LOG: Final = no_such_time("failed to find log segment for timestamp: EOF")
BEFORE_LOG: Final = no_such_time("timestamp is before the beginning of the log")


async def filled(wire: Wire, stream: str) -> list[int]:
    """A stream of ten messages; their timestamps."""
    await wire.create(stream)
    acks = await wire.publish(stream, *(b"%d" % n for n in range(COUNT)))
    await wire.stored(stream, COUNT)
    return [ack.reception_timestamp for ack in acks]


async def offsets(wire: Wire, stream: str, **positions: Any) -> tuple[list[int], End]:
    """The offsets of a subscription that ends by itself, and its end."""
    async with wire.subscribe(stream, **positions) as subscription:
        messages, end = await subscription.rest()
    return [message.offset for message in messages], end


async def refused(wire: Wire, stream: str, **positions: Any) -> End:
    """Return the status of a subscription that is refused before its handshake."""
    with pytest.raises(Ended) as ended:
        await offsets(wire, stream, **positions)
    return ended.value.end


@pytest.mark.parametrize(
    ("positions", "expected"),
    [
        pytest.param(FROM_EARLIEST | TO_LATEST, range(10), id="earliest-latest"),
        pytest.param(LATEST | TO_LATEST, range(9, 10), id="latest-latest"),
        pytest.param(from_offset(5) | TO_LATEST, range(5, 10), id="5-latest"),
        pytest.param(from_offset(9) | TO_LATEST, range(9, 10), id="last-latest"),
        pytest.param(from_offset(5) | to_offset(7), range(5, 8), id="5-7"),
        pytest.param(from_offset(5) | to_offset(5), range(5, 6), id="5-5"),
        pytest.param(from_offset(-5) | to_offset(1), range(2), id="negative-1"),
        pytest.param(FROM_EARLIEST | to_offset(0), range(1), id="earliest-0"),
        pytest.param(from_time(0) | TO_LATEST, range(10), id="epoch-latest"),
        pytest.param(from_time(-1) | TO_LATEST, range(10), id="before-epoch-latest"),
    ],
)
async def test_a_bounded_subscription_gives_its_range_and_ends(
    wire: Wire, stream_name: str, positions: dict[str, Any], expected: range
) -> None:
    await filled(wire, stream_name)

    assert await offsets(wire, stream_name, **positions) == (list(expected), STOP_REACHED)


async def test_timestamps_start_at_the_message_and_stop_at_it(wire: Wire, stream_name: str) -> None:
    times = await filled(wire, stream_name)

    async def span(positions: dict[str, Any]) -> list[int]:
        found, end = await offsets(wire, stream_name, **positions)
        assert end == STOP_REACHED
        return found

    assert await span(from_time(times[4]) | TO_LATEST) == list(range(4, 10))
    assert await span(from_time(times[4] + 1) | TO_LATEST) == list(range(5, 10))
    assert await span(from_time(times[9]) | TO_LATEST) == [9]
    assert await span(FROM_EARLIEST | to_time(times[0])) == [0]
    assert await span(FROM_EARLIEST | to_time(times[4])) == list(range(5))
    assert await span(FROM_EARLIEST | to_time(times[5] - 1)) == list(range(5))
    assert await span(FROM_EARLIEST | to_time(time.time_ns())) == list(range(10))
    assert await span(FROM_EARLIEST | to_time(time.time_ns() + 10**18)) == list(range(10))
    assert await span(from_time(times[3]) | to_time(times[6])) == [3, 4, 5, 6]


@pytest.mark.parametrize(
    ("positions", "end"),
    [
        pytest.param(NEW_ONLY | TO_LATEST, backwards(9, 10), id="new_only-latest"),
        pytest.param(from_offset(10) | TO_LATEST, backwards(9, 10), id="next-latest"),
        pytest.param(from_offset(99) | TO_LATEST, backwards(9, 99), id="99-latest"),
        pytest.param(from_offset(5) | to_offset(4), backwards(4, 5), id="5-4"),
        pytest.param(FROM_EARLIEST | to_offset(-2), backwards(-2, 0), id="earliest-minus 2"),
        pytest.param(FROM_EARLIEST | to_time(1), BEFORE_LOG, id="earliest-epoch"),
    ],
)
async def test_a_range_that_holds_nothing_is_refused(
    wire: Wire, stream_name: str, positions: dict[str, Any], end: End
) -> None:
    await filled(wire, stream_name)

    assert await refused(wire, stream_name, **positions) == end


async def test_a_time_after_the_last_message_is_the_next_offset(
    wire: Wire, stream_name: str
) -> None:
    times = await filled(wire, stream_name)
    after = from_time(times[-1] + 1)

    assert await refused(wire, stream_name, **after, **TO_LATEST) == backwards(9, 10)
    async with wire.subscribe(stream_name, **after) as subscription:
        await wire.publish(stream_name, b"new")
        assert (await subscription.next()).offset == COUNT


@pytest.mark.parametrize(
    ("positions", "end"),
    [
        pytest.param(FROM_EARLIEST | TO_LATEST, STREAM_EMPTY, id="earliest-latest"),
        pytest.param(LATEST | TO_LATEST, STREAM_EMPTY, id="latest-latest"),
        pytest.param(NEW_ONLY | TO_LATEST, STREAM_EMPTY, id="new_only-latest"),
        pytest.param(from_offset(7) | TO_LATEST, STREAM_EMPTY, id="7-latest"),
        pytest.param(from_time(1) | TO_LATEST, STREAM_EMPTY, id="epoch-latest"),
        pytest.param(FROM_EARLIEST | to_time(1), EMPTY_LOG, id="earliest-epoch"),
        pytest.param(FROM_EARLIEST | to_time(2**62), EMPTY_LOG, id="earliest-future"),
    ],
)
async def test_an_empty_stream_cannot_be_bounded_by_what_it_holds(
    wire: Wire, stream_name: str, positions: dict[str, Any], end: End
) -> None:
    await wire.create(stream_name)

    assert await refused(wire, stream_name, **positions) == end


@pytest.mark.parametrize(
    "start",
    [
        pytest.param(NEW_ONLY, id="new_only"),
        pytest.param(FROM_EARLIEST, id="earliest"),
        pytest.param(LATEST, id="latest"),
        pytest.param(from_offset(0), id="0"),
        pytest.param(from_offset(7), id="7"),
        pytest.param(from_time(1), id="epoch"),
        pytest.param(from_time(2**62), id="future"),
    ],
)
async def test_on_an_empty_stream_every_start_is_offset_0(
    wire: Wire, stream_name: str, start: dict[str, Any]
) -> None:
    await wire.create(stream_name)

    async with wire.subscribe(stream_name, **start) as subscription:
        await wire.publish(stream_name, b"a", b"b")
        assert [message.offset for message in await subscription.take(2)] == [0, 1]


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        pytest.param(NEW_ONLY, [10, 11], id="new_only"),
        pytest.param(LATEST, [9, 10, 11], id="latest"),
        pytest.param(from_offset(8), [8, 9, 10, 11], id="8"),
        pytest.param(from_offset(10), [10, 11], id="next"),
        pytest.param(from_offset(99), [10, 11], id="99"),
    ],
)
async def test_a_tail_goes_on_with_what_is_published(
    wire: Wire, stream_name: str, start: dict[str, Any], expected: list[int]
) -> None:
    """A start beyond the end does not wait for that offset: lower ones arrive."""
    await filled(wire, stream_name)

    async with wire.subscribe(stream_name, **start) as subscription:
        await wire.publish(stream_name, b"a", b"b")
        messages = await subscription.take(len(expected))
    assert [message.offset for message in messages] == expected


async def test_a_start_beyond_the_end_reads_on_to_its_stop(wire: Wire, stream_name: str) -> None:
    await filled(wire, stream_name)

    async with wire.subscribe(stream_name, **from_offset(11), **to_offset(11)) as subscription:
        await wire.publish(stream_name, b"a", b"b")
        messages, end = await subscription.rest()
    assert [message.offset for message in messages] == [10, 11]
    assert end == STOP_REACHED


async def test_a_stop_at_minus_one_is_no_stop(wire: Wire, stream_name: str) -> None:
    await filled(wire, stream_name)

    async with wire.subscribe(stream_name, **from_offset(9), **to_offset(-1)) as subscription:
        await wire.publish(stream_name, b"new")
        assert [message.offset for message in await subscription.take(2)] == [9, 10]


async def test_version_1_ignores_the_wish_to_read_backwards(wire: Wire, stream_name: str) -> None:
    await filled(wire, stream_name)

    async with wire.subscribe(stream_name, **from_offset(5), reverse=True) as subscription:
        assert [message.offset for message in await subscription.take(3)] == [5, 6, 7]


async def test_the_leader_serves_those_who_would_take_a_replica(
    wire: Wire, stream_name: str
) -> None:
    await filled(wire, stream_name)

    found = await offsets(wire, stream_name, **from_offset(8), **TO_LATEST, read_isr_replica=True)
    assert found == ([8, 9], STOP_REACHED)
