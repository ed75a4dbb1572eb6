"""Values from outside, each kind parsed by one bounded function. Pure.

Requests, responses, JSON bodies and messages of logs come from others. A parser takes any text, and
returns None (or raises `ValueError`, for JSON) where the value is invalid: no other exception
leaves it. Its result is within bounds that all later arithmetic can stand.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from math import inf
from typing import Any, Final
from urllib.parse import unquote_to_bytes

INTEGER_MAX: Final = 2**53 - 1
"""Section 5.2.1: the largest epoch and sequence number, as JavaScript cannot count further."""
OFFSET_MAX_CHARS: Final = 256
"""Section 8: offsets are shorter, as each request's URL has one."""
CURSOR_MAX_CHARS: Final = 256
"""Cursors are in URLs, too."""

# int() takes time that grows with the square of the digits, and refuses more than 4,300 of them.
_INTEGER: Final = re.compile(r"0|[1-9][0-9]{0,15}")
_DIGITS: Final = re.compile(r"[0-9]+")
_RFC_3339: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,32})?"
    r"([Zz]|[+-][0-9]{2}:[0-9]{2})"
)
_NOT_IN_OFFSETS: Final = frozenset(",&=?/")
_DATE_MAX_CHARS: Final = 64


def parse_integer(value: str | None, most: int = INTEGER_MAX) -> int | None:
    """Return a number in decimal notation; None if it is missing, another text, or above `most`."""
    if value is None or not _INTEGER.fullmatch(value):
        return None
    number = int(value)
    return number if number <= most else None


def is_offset(text: str) -> bool:
    """Return True if a text can be an offset: little is certain, as offsets are opaque."""
    return (
        0 < len(text) <= OFFSET_MAX_CHARS
        and text.isprintable()
        and _NOT_IN_OFFSETS.isdisjoint(text)
    )


def is_cursor(text: str) -> bool:
    """Return True if a text can be sent back as a cursor."""
    return len(text) <= CURSOR_MAX_CHARS and (not text or text.isprintable())


def parse_time(text: str) -> datetime | None:
    """Return a time of RFC 3339; None if it is another text, or beyond what clocks can show."""
    if not _RFC_3339.fullmatch(text):
        return None
    try:
        moment = datetime.fromisoformat(text.upper())
        moment.astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    return moment


def parse_retry_after(value: str | None, now: datetime) -> float:
    """Return the seconds in a `Retry-After`, a number or a date; infinity for an endless number.

    Text that is neither asks for no wait.
    """
    text = (value or "").strip()
    if _DIGITS.fullmatch(text):
        number = parse_integer(text.lstrip("0") or "0")
        return inf if number is None else float(number)
    try:
        date = parsedate_to_datetime(text[:_DATE_MAX_CHARS])
        if date.tzinfo is None:
            date = date.replace(tzinfo=UTC)
        return max(0.0, (date - now).total_seconds())
    except (ValueError, TypeError, OverflowError, IndexError):
        return 0.0


def parse_json(body: bytes, *, encodable: bool = False) -> Any:
    """Return the value in a body of JSON.

    Args:
        body: the body, in UTF-8.
        encodable: refuse text with half of a surrogate pair, which JSON may escape and no UTF-8
            can hold: for values that are written again.

    Raises:
        ValueError: it is not JSON, is nested too deeply, or has a number of thousands of digits.
    """
    try:
        value = json.loads(body.decode(), parse_constant=_refuse_constant)
        if encodable and b"\\u" in body:
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return value


def _refuse_constant(name: str) -> None:
    """Refuse NaN and its like, which Python takes for JSON."""
    raise ValueError(name)


def decode_path(encoded: bytes) -> str | None:
    """Return a path as text; None if its percent-encoded bytes are not UTF-8.

    It is decoded once, as servers decode the path of a URL: `%2520` is `%20`, and a percent sign
    without two digits stays one.
    """
    try:
        return unquote_to_bytes(encoded).decode()
    except UnicodeDecodeError:
        return None
