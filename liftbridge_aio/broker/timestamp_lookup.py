"""Offsets by time, as a v1.9.0 server finds them (W23). Pure.

It halves the list of segments by the time of their first messages. An empty last segment has none:
if the search happens to meet it, it fails, even for a time that older segments hold.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from .segment import Segment


class LookupFailed(Exception):
    """No offset could be found for a timestamp; the text is the real server's (W23)."""


class _MetEmptySegment(Exception):
    """The search came to a segment that holds nothing."""


def earliest_offset_from(segments: Sequence[Segment], timestamp: int) -> int | None:
    """Return the offset of the first message at or after `timestamp`; None: the end of the log.

    As on a real server, a time between the last message of the last segment but one and the first
    of the last segment is taken for the end of the log as well.
    """
    try:
        later = _first_begun_after(segments, timestamp)
    except _MetEmptySegment:
        return None
    found = segments[max(later - 1, 0)].offset_from(timestamp)
    if found is None and later < len(segments) - 1:
        return segments[later].first_offset
    return found


def latest_offset_until(segments: Sequence[Segment], timestamp: int) -> int:
    """Return the offset of the last message at or before `timestamp`.

    Of several messages with exactly this timestamp it is the first, and where compaction removed
    messages it is the one before the next that is kept, as on a real server.

    Raises:
        LookupFailed: the log begins later, or an empty segment was met.
    """
    try:
        later = _first_begun_after(segments, timestamp)
    except _MetEmptySegment:
        text = "failed to find log segment for timestamp: EOF"
        raise LookupFailed(text) from None
    if later == 0:
        text = "timestamp is before the beginning of the log"
        raise LookupFailed(text)
    segment = segments[later - 1]
    following = segment.offset_from(timestamp)
    if following is None:
        return _kept(segment.last_offset)
    [message] = segment.read(following, 1, following + 1)
    return following if message.timestamp == timestamp else following - 1


def _first_begun_after(segments: Sequence[Segment], timestamp: int) -> int:
    return bisect_right(segments, timestamp, key=lambda one: _kept(one.first_timestamp))


def _kept(value: int | None) -> int:
    if value is None:
        raise _MetEmptySegment
    return value
