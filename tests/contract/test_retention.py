"""The messages that retention removes, and its effect on readers."""

from __future__ import annotations

import pytest
from grpclib.const import Status

from support.raw import FROM_EARLIEST, TO_LATEST, End, Wire
from support.segments import (
    MAX_AGE,
    become,
    becomes_empty,
    cleaner_has_been_at_work,
    create,
    first_offsets,
    from_offset,
    kept,
    offsets,
    record_bytes,
    subscribe,
    to_offset,
)

SEGMENT_REMOVED = End(Status.UNKNOWN, "failed to read message headers: segment has been closed")


@pytest.mark.parametrize(("limit", "expected"), [(3, [7, 8, 9]), (1, [9])])
async def test_as_many_messages_stay_as_are_allowed(
    wire: Wire, cleaned_stream: str, limit: int, expected: list[int]
) -> None:
    await create(wire, cleaned_stream, retention_max_messages=limit)
    await wire.publish(cleaned_stream, *[b""] * 10)

    await become(wire, cleaned_stream, expected)


@pytest.mark.parametrize(("spare", "expected"), [(0, [7, 8, 9]), (-1, [8, 9])])
async def test_bytes_are_those_of_the_files(
    wire: Wire, cleaned_stream: str, spare: int, expected: list[int]
) -> None:
    size = record_bytes(cleaned_stream, value=b"v" * 100)
    await create(wire, cleaned_stream, retention_max_bytes=3 * size + spare)
    await wire.publish(cleaned_stream, *[b"v" * 100] * 10)

    await become(wire, cleaned_stream, expected)


async def test_a_segment_goes_as_a_whole_or_not_at_all(wire: Wire, cleaned_stream: str) -> None:
    segment_bytes = 3 * record_bytes(cleaned_stream)
    await create(wire, cleaned_stream, segment_bytes=segment_bytes, retention_max_messages=4)
    await wire.publish(cleaned_stream, *[b""] * 8)

    await become(wire, cleaned_stream, [6, 7])  # with 3 to 5 there would be five


async def test_negative_limits_are_none(wire: Wire, cleaned_stream: str) -> None:
    await create(
        wire,
        cleaned_stream,
        retention_max_messages=-1,
        retention_max_bytes=-1,
        retention_max_age=-1,
    )
    await wire.publish(cleaned_stream, b"0", b"1", b"2")
    await cleaner_has_been_at_work(wire, cleaned_stream)

    assert await kept(wire, cleaned_stream) == [0, 1, 2]


async def test_a_start_below_the_oldest_is_the_oldest(wire: Wire, cleaned_stream: str) -> None:
    await create(wire, cleaned_stream, retention_max_messages=2)
    await wire.publish(cleaned_stream, *[b""] * 6)
    await become(wire, cleaned_stream, [4, 5])

    for start in (0, 3, 4):
        found, _ = await offsets(wire, cleaned_stream, **from_offset(start), **TO_LATEST)
        assert found == [4, 5]


async def test_a_stop_below_the_oldest_does_not_stop(wire: Wire, cleaned_stream: str) -> None:
    await create(wire, cleaned_stream, retention_max_messages=2)
    await wire.publish(cleaned_stream, *[b""] * 6)
    await become(wire, cleaned_stream, [4, 5])

    positions = from_offset(0) | to_offset(2)
    assert await first_offsets(wire, cleaned_stream, 2, **positions) == [4, 5]


async def test_an_idle_stream_becomes_empty_by_age_and_keeps_its_offsets(
    wire: Wire, cleaned_stream: str
) -> None:
    await create(wire, cleaned_stream, retention_max_age=MAX_AGE)
    await wire.publish(cleaned_stream, b"0", b"1")
    await becomes_empty(wire, cleaned_stream)

    await wire.set_readonly(cleaned_stream, readonly=False)
    metadata = await wire.partition(cleaned_stream)
    assert (metadata.newest_offset, metadata.high_watermark) == (1, 1)
    async with subscribe(wire, cleaned_stream, **FROM_EARLIEST, **TO_LATEST) as subscription:
        await wire.publish(cleaned_stream, b"2")
        assert (await subscription.next()).offset == 2  # the stop was offset 1


async def test_a_tail_ends_if_all_that_it_has_read_is_forgotten(
    wire: Wire, cleaned_stream: str
) -> None:
    await create(wire, cleaned_stream, retention_max_age=MAX_AGE)
    async with subscribe(wire, cleaned_stream, **FROM_EARLIEST) as tail:
        await wire.publish(cleaned_stream, b"0", b"1")
        assert [one.offset for one in await tail.take(2)] == [0, 1]
        await cleaner_has_been_at_work(wire, cleaned_stream)

        await wire.publish(cleaned_stream, b"2")
        assert await tail.end() == SEGMENT_REMOVED
