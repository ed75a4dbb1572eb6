"""Offsets by timestamp, as a v1.9.0 server finds them. Pure.

The server bisects the segments by the timestamps of their first messages. An empty last segment has
none: a search that probes it fails, even for a timestamp within older segments.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from .segment import Segment


class LookupFailed(Exception):
    """No offset was found for a timestamp; the text is a real server's."""


class _EmptySegment(Exception):
    """The search probed a segment without messages."""


def earliest_offset_from(segments: Sequence[Segment], timestamp: int) -> int | None:
    """Return the offset of the first message at or after `timestamp`, None for the end of the log.

    As on a real server, a timestamp between the last two segments means the end of the log, too.
    """
    try:
        later = _first_begun_after(segments, timestamp)
    except _EmptySegment:
        return None
    found = segments[max(later - 1, 0)].offset_from(timestamp)
    if found is None and later < len(segments) - 1:
        return segments[later].first_offset
    return found


def latest_offset_until(segments: Sequence[Segment], timestamp: int) -> int:
    """Return the offset of the last message at or before `timestamp`.

    As on a real server, of several messages with exactly this timestamp it is the first, and where
    compaction removed messages it is the offset before the next message.

    Raises:
        LookupFailed: the log begins later, or the search probed an empty segment.
    """
    try:
        later = _first_begun_after(segments, timestamp)
    except _EmptySegment:
        raise LookupFailed("failed to find log segment for timestamp: EOF") from None
    if later == 0:
        raise LookupFailed("timestamp is before the beginning of the log")
    segment = segments[later - 1]
    following = segment.offset_from(timestamp)
    if following is None:
        return _existing(segment.last_offset)
    [message] = segment.read(following, 1, following + 1)
    return following if message.timestamp == timestamp else following - 1


def _first_begun_after(segments: Sequence[Segment], timestamp: int) -> int:
    return bisect_right(segments, timestamp, key=lambda one: _existing(one.first_timestamp))


def _existing(value: int | None) -> int:
    if value is None:
        raise _EmptySegment
    return value
