"""Which segments a log may forget, by age, number of messages and bytes. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from .log_limits import LogLimits
from .segment import Segment


def surplus(segments: Sequence[Segment], limits: LogLimits, now: int) -> int:
    """Return how many segments to forget, beginning with the oldest.

    Segments go as a whole, and the last one never does. As on a real server, it does not matter
    whether they are committed.

    Args:
        segments: all of a log, oldest first; at least one.
        limits: of the log.
        now: in Unix nanoseconds.
    """
    forgotten = 0
    if limits.retention_max_age > 0:
        forgotten = _older_than(segments, now - limits.retention_max_age)
    if limits.retention_max_messages > 0:
        counts = [segment.count for segment in segments]
        forgotten = max(forgotten, _beyond(counts, limits.retention_max_messages))
    if limits.retention_max_bytes > 0:
        sizes = [segment.size_bytes for segment in segments]
        forgotten = max(forgotten, _beyond(sizes, limits.retention_max_bytes))
    return forgotten


def _older_than(segments: Sequence[Segment], timestamp: int) -> int:
    for index, segment in enumerate(segments[:-1]):
        if segment.last_timestamp is None or segment.last_timestamp >= timestamp:
            return index
    return len(segments) - 1


def _beyond(amounts: Sequence[int], limit: int) -> int:
    """Tell how many of the first amounts do not fit with all later ones; the last always does."""
    totals = list(accumulate(reversed(amounts)))
    return sum(total > limit for total in totals[1:])
