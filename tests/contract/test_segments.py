"""When logs begin a new segment, and how that shows: in searches by time."""

from __future__ import annotations

from typing import Any

import pytest
from grpclib.const import Status

from liftbridge_aio.wire import proto
from support.raw import FROM_EARLIEST, TO_LATEST, End, Ended, Wire, eventually
from support.segments import become, create, offsets, record_bytes

NEVER = 3_600_000
"""A cleaner interval that no test lives to see, in milliseconds."""
ENDS_WITH_EMPTY_SEGMENT = End(
    Status.INTERNAL,
    ("Failed to lookup offset for timestamp: failed to find log segment for timestamp: EOF"),
)


def from_time(timestamp: int) -> dict[str, Any]:
    return {"start_position": proto.StartPosition.TIMESTAMP, "start_timestamp": timestamp}


def to_time(timestamp: int) -> dict[str, Any]:
    return {"stop_position": proto.StopPosition.STOP_TIMESTAMP, "stop_timestamp": timestamp}


async def begins_at(wire: Wire, stream: str, timestamp: int) -> int:
    """The offset at which a reader from a time begins; the next one if there is none."""
    try:
        found, _ = await offsets(wire, stream, **from_time(timestamp), **TO_LATEST)
    except Ended as ended:
        if ended.end.status is not Status.INVALID_ARGUMENT:
            raise
        return int(ended.end.text.rsplit(" ", 1)[1])  # "Stop offset is before start offset: 1 < 2"
    return found[0]


async def ends_at(wire: Wire, stream: str, timestamp: int) -> int | End:
    """The offset at which a reader to a time ends, or how it is refused."""
    try:
        found, _ = await offsets(wire, stream, **FROM_EARLIEST, **to_time(timestamp))
    except Ended as ended:
        return ended.end
    return found[-1]


async def is_rolled(wire: Wire, stream: str, timestamp: int) -> None:
    """Wait until the last segment is empty, which the time of the last message tells."""

    async def has_empty_segment() -> bool:
        return await ends_at(wire, stream, timestamp) == ENDS_WITH_EMPTY_SEGMENT

    await eventually(has_empty_segment)


async def publish(wire: Wire, stream: str, count: int) -> list[int]:
    """Publish; the times at which the messages were stored."""
    return [ack.reception_timestamp for ack in await wire.publish(stream, *[b""] * count)]


@pytest.mark.parametrize(("spare", "expected"), [(0, [6, 7, 8]), (1, [8])])
async def test_a_segment_is_full_when_it_reaches_its_size(
    wire: Wire, cleaned_stream: str, spare: int, expected: list[int]
) -> None:
    size = 3 * record_bytes(cleaned_stream) + spare
    await create(wire, cleaned_stream, segment_bytes=size, retention_max_messages=3)
    await wire.publish(cleaned_stream, *[b""] * 9)

    await become(wire, cleaned_stream, expected)


async def test_an_idle_segment_is_rolled_by_age(wire: Wire, cleaned_stream: str) -> None:
    await create(wire, cleaned_stream, segment_bytes=1_000_000, segment_max_age=100)
    [stored] = await publish(wire, cleaned_stream, 1)

    await is_rolled(wire, cleaned_stream, stored)
    assert await ends_at(wire, cleaned_stream, stored) == ENDS_WITH_EMPTY_SEGMENT


@pytest.mark.parametrize(
    ("count", "found"), [(1, []), (2, [0]), (3, [0, 1]), (4, [0, 1]), (5, [0, 1, 2])]
)
async def test_an_empty_last_segment_hides_the_later_half(
    wire: Wire, cleaned_stream: str, count: int, found: list[int]
) -> None:
    await create(wire, cleaned_stream)
    times = await publish(wire, cleaned_stream, count)
    await is_rolled(wire, cleaned_stream, times[-1])

    hidden: list[int | End] = [ENDS_WITH_EMPTY_SEGMENT] * (count - len(found))
    assert [await begins_at(wire, cleaned_stream, time) for time in times] == (
        found + [count] * len(hidden)
    )
    assert [await ends_at(wire, cleaned_stream, time) for time in times] == [*found, *hidden]


async def test_a_time_between_the_last_two_segments_is_taken_for_the_end(
    wire: Wire, cleaned_stream: str
) -> None:
    await create(wire, cleaned_stream, cleaner_interval=NEVER)
    times = await publish(wire, cleaned_stream, 4)

    assert [await begins_at(wire, cleaned_stream, time) for time in times] == [0, 1, 2, 3]
    assert [await begins_at(wire, cleaned_stream, time + 1) for time in times] == [1, 2, 4, 4]
    assert [await ends_at(wire, cleaned_stream, time + 1) for time in times] == [0, 1, 2, 3]


async def test_a_negative_age_makes_a_segment_of_each_message(
    wire: Wire, cleaned_stream: str
) -> None:
    await create(
        wire,
        cleaned_stream,
        segment_bytes=1_000_000,
        segment_max_age=-1,
        retention_max_messages=1,
    )
    await wire.publish(cleaned_stream, *[b""] * 5)

    await become(wire, cleaned_stream, [4])
