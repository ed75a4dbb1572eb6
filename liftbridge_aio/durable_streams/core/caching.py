"""Cursors and entity tags, which keep caches correct. Pure; for servers."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from .parsing import parse_integer

CURSOR_INTERVAL: Final = 20
"""Seconds that share a cursor (section 10.1)."""
_CURSOR_EPOCH: Final = datetime(2024, 10, 9, tzinfo=UTC).timestamp()
_JITTER_MAX: Final = 3_600
_MAX_AGE: Final = 60
_STALE: Final = 300
"""Seconds for which a cache may answer, and then while it asks anew (section 10.1)."""


def next_cursor(now: float, given: str | None, fraction: float) -> str:
    """Return the cursor of a response to a live read.

    It is the number of the present interval. A client that has this one or a later one gets one
    that is later still, by up to an hour: otherwise a cache would answer it for ever.

    Args:
        now: seconds since 1970.
        given: the cursor in the request.
        fraction: a random number in [0, 1).
    """
    present = int((now - _CURSOR_EPOCH) // CURSOR_INTERVAL)
    known = parse_integer(given)
    if known is None or known < present:
        return str(present)
    jitter = 1 + fraction * (_JITTER_MAX - 1)
    return str(known + max(1, int(jitter // CURSOR_INTERVAL)))


def cache_control(visibility: str, remaining: float | None) -> str:
    """Return the `Cache-Control` of a read: no cache shows a stream that has expired.

    Args:
        visibility: `public` or `private`.
        remaining: seconds that the stream lives at least; None: without end.
    """
    whole = _MAX_AGE + _STALE if remaining is None else int(min(remaining, _MAX_AGE + _STALE))
    if whole < 1:
        return "no-store"
    age = min(whole, _MAX_AGE)
    stale = f", stale-while-revalidate={whole - age}" if whole > age else ""
    return f"{visibility}, max-age={age}{stale}"


def entity_tag(stream_id: str, start: str, end: str, *, closed: bool) -> str:
    """Return the entity tag of a read; it changes when the stream is closed (section 10.1)."""
    return f'"{stream_id}:{start}:{end}{":c" if closed else ""}"'


def matches(if_none_match: str | None, tag: str) -> bool:
    """Return True if a request's `If-None-Match` has the tag, so that the answer is 304."""
    if if_none_match is None:
        return False
    given = {each.strip().removeprefix("W/") for each in if_none_match.split(",")}
    return "*" in given or tag in given
