"""What compaction by key takes, and what those who read there see of it."""

from __future__ import annotations

from contract.raw import FROM_EARLIEST, Wire
from contract.segments import (
    become,
    create_compacted,
    from_offset,
    offsets,
    publish_keys,
    record_bytes,
    subscribe,
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
    await publish_keys(wire, cleaned_stream, "abab")
    await become(wire, cleaned_stream, [2, 3])

    positions = from_offset(0) | to_offset(1)
    async with subscribe(wire, cleaned_stream, **positions) as subscription:
        assert [one.offset for one in await subscription.take(2)] == [2, 3]
        await publish_keys(wire, cleaned_stream, "-")
        assert (await subscription.next()).offset == 4


async def test_a_tail_does_not_notice(wire: Wire, cleaned_stream: str) -> None:
    await create_compacted(wire, cleaned_stream)
    async with subscribe(wire, cleaned_stream, **FROM_EARLIEST) as tail:
        await publish_keys(wire, cleaned_stream, "aba")
        assert [one.offset for one in await tail.take(3)] == [0, 1, 2]
        await become(wire, cleaned_stream, [1, 2])
        await publish_keys(wire, cleaned_stream, "ba")
        assert [one.offset for one in await tail.take(2)] == [3, 4]
        await become(wire, cleaned_stream, [3, 4])
        await publish_keys(wire, cleaned_stream, "-")
        assert (await tail.next()).offset == 5
