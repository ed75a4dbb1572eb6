"""The cleaning of a log: retention deletes segments, compaction deletes messages. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate

from liftbridge_aio.model import Message

from .segment import Segment
from .stream_config import LogLimits


def expired_segments(segments: Sequence[Segment], limits: LogLimits, now: int) -> int:
    """Return the number of oldest segments that retention deletes.

    The last segment always stays. As on a real server, uncommitted messages are deleted, too.

    Args:
        segments: all segments of a log, oldest first; at least one.
        limits: limits of the log.
        now: Unix nanoseconds.
    """
    expired = 0
    if limits.retention_max_age > 0:
        expired = _older_than(segments, now - limits.retention_max_age)
    if limits.retention_max_messages > 0:
        counts = [segment.count for segment in segments]
        expired = max(expired, _beyond(counts, limits.retention_max_messages))
    if limits.retention_max_bytes > 0:
        sizes = [segment.size_bytes for segment in segments]
        expired = max(expired, _beyond(sizes, limits.retention_max_bytes))
    return expired


def _older_than(segments: Sequence[Segment], timestamp: int) -> int:
    for index, segment in enumerate(segments[:-1]):
        if segment.last_timestamp is None or segment.last_timestamp >= timestamp:
            return index
    return len(segments) - 1


def _beyond(amounts: Sequence[int], limit: int) -> int:
    """Return the number of first amounts that exceed the limit together with all later ones."""
    totals = list(accumulate(reversed(amounts)))
    return sum(total > limit for total in totals[1:])


def latest_offsets(segments: Sequence[Segment], high_watermark: int) -> Mapping[bytes, int]:
    """Return for each key the offset of its last committed message in `segments`."""
    return {
        message.key: message.offset
        for segment in segments
        for message in segment.read(segment.base_offset, segment.count, high_watermark + 1)
    }


def retained(
    segment: Segment, latest: Mapping[bytes, int], high_watermark: int
) -> Sequence[Message]:
    """Return the messages of a segment that compaction retains.

    These are the last committed one of each key, all without a key, and all uncommitted ones.
    """
    return [
        message
        for message in segment.read(segment.base_offset, segment.count, segment.next_offset)
        if not message.key
        or message.offset > high_watermark
        or message.offset == latest[message.key]
    ]
