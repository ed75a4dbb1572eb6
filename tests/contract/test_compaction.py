"""The messages that compaction by key removes, and its effect on readers."""

from __future__ import annotations

from support.raw import FROM_EARLIEST, Wire
from support.segments import (
    become,
    create_compacted,
    first_offsets,
    from_offset,
    offsets,
    publish_keys,
    record_bytes,
    to_offset,
)


async def test_the_last_message_of_each_key_stays_and_all_without_key(
    wire: Wire, cleaned_stream: str
) -> None:
    await create_compacted(wire, cleaned_stream)
    await publish_keys(wire, cleaned_stream, "ab-a-bca")
    await become(wire, cleaned_stream, [2, 4, 5, 6, 7])

    await publish_keys(wire, cleaned_stream, "a")
    await become(wire, cleaned_stream, [2, 4, 5, 6, 8])


async def test_the_active_segment_is_left_alone_but_its_keys_count(
    wire: Wire, cleaned_stream: str
) -> None:
    segment_bytes = 3 * record_bytes(cleaned_stream, key=b"a")
    await create_compacted(wire, cleaned_stream, segment_bytes=segment_bytes)
    await publish_keys(wire, cleaned_stream, "aab" + "aa")

    await become(wire, cleaned_stream, [2, 3, 4])


async def test_a_segment_of_which_nothing_stays_is_gone(wire: Wire, cleaned_stream: str) -> None:
    await create_compacted(wire, cleaned_stream)
    await publish_keys(wire, cleaned_stream, "aaab")
    await become(wire, cleaned_stream, [2, 3])

    found, _ = await offsets(wire, cleaned_stream, **FROM_EARLIEST, **to_offset(2))
    assert found == [2]


async def test_offsets_that_are_gone_begin_at_the_next_that_is_kept(
    wire: Wire, cleaned_stream: str
) -> None:
    segment_bytes = 4 * record_bytes(cleaned_stream, key=b"a")
    await create_compacted(wire, cleaned_stream, segment_bytes=segment_bytes)
    await publish_keys(wire, cleaned_stream, "abca" + "dbc")
    await become(wire, cleaned_stream, [3, 4, 5, 6])

    for start in range(4):
        found, _ = await offsets(wire, cleaned_stream, **from_offset(start), **to_offset(4))
        assert found == [3, 4]


async def test_a_stop_that_is_gone_does_not_stop(wire: Wire, cleaned_stream: str) -> None:
    await create_compacted(wire, cleaned_stream)
    await publish_keys(wire, cleaned_stream, "abab-")
    await become(wire, cleaned_stream, [2, 3, 4])

    positions = from_offset(0) | to_offset(1)
    assert await first_offsets(wire, cleaned_stream, 3, **positions) == [2, 3, 4]
