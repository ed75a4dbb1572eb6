"""Which messages of a log are superseded by later ones with the same key. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from liftbridge_aio.model import Message

from .segment import Segment


def latest_offsets(segments: Sequence[Segment], high_watermark: int) -> Mapping[bytes, int]:
    """Return, for each key, the offset of its last committed message in `segments`."""
    return {
        message.key: message.offset
        for segment in segments
        for message in segment.read(segment.base_offset, segment.count, high_watermark + 1)
    }


def survivors(
    segment: Segment, latest: Mapping[bytes, int], high_watermark: int
) -> Sequence[Message]:
    """Return the messages of a segment that compaction keeps.

    These are the last committed one of each key, all without a key, and all that are not committed.
    """
    return [
        message
        for message in segment.read(segment.base_offset, segment.count, segment.next_offset)
        if not message.key
        or message.offset > high_watermark
        or message.offset == latest[message.key]
    ]
