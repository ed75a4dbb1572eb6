"""What arguments mean: positions, durations, headers. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Final

from liftbridge_aio.arguments import INT64_MAX
from liftbridge_aio.model import Message, StartAt, StopAt, StopPosition, datetime_from_ns

_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_DURATION_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhdw])")

DURATION_HELP: Final = "seconds, or with units: 500ms, 90s, 1h30m, 7d"


class BadArgument(ValueError):
    """An argument that cannot be understood; the text says what would be."""


def parse_duration(text: str) -> float:
    """Turn `90`, `90s`, `1h30m` or `500ms` into seconds.

    Raises:
        BadArgument: it is none of these.
    """
    plain = text.strip().lower()
    try:
        if plain and _DURATION_PART.sub("", plain) == "":
            return sum(float(n) * _UNITS[unit] for n, unit in _DURATION_PART.findall(plain))
        if re.fullmatch(r"\d+(\.\d+)?", plain):
            return float(plain)
    except OverflowError:
        pass
    message = f"{text!r} is no duration; write {DURATION_HELP}"
    raise BadArgument(message)


def parse_start(text: str) -> StartAt:
    """Turn `new`, `latest`, `earliest`, an offset, a time or `-5m` into a start position.

    Raises:
        BadArgument: it is none of these.
    """
    plain = text.strip().lower()
    if plain == "new":
        return StartAt.new_only()
    if plain == "latest":
        return StartAt.latest()
    if plain == "earliest":
        return StartAt.earliest()
    if plain.isdecimal():
        return StartAt.offset(_offset(plain))
    if plain.startswith("-"):
        try:
            return StartAt.ago(timedelta(seconds=parse_duration(plain[1:])))
        except OverflowError:
            message = f"{text!r} goes back further than time does"
            raise BadArgument(message) from None
    return StartAt.time(_moment(text, "new, latest, earliest, an offset, a time or -5m"))


def parse_stop(text: str) -> StopAt:
    """Turn `latest`, an offset or a time into a stop position.

    Raises:
        BadArgument: it is none of these.
    """
    plain = text.strip().lower()
    if plain == "latest":
        return StopAt.latest()
    if plain.isdecimal():
        return StopAt.offset(_offset(plain))
    return StopAt.time(_moment(text, "latest, an offset or a time"))


@dataclass(frozen=True, slots=True)
class LastMessages:
    """A start so many messages before the end of each partition."""

    count: int


def parse_from(text: str) -> StartAt | LastMessages:
    """Turn `last:10`, or what `parse_start` understands, into a start position.

    Raises:
        BadArgument: it is none of these.
    """
    word, colon, number = text.strip().lower().partition(":")
    if colon and word == "last":
        if not number.isdecimal() or not _offset(number):
            message = f"{text!r} is not understood; write last:10 for the last ten messages"
            raise BadArgument(message)
        return LastMessages(_offset(number))
    return parse_start(text)


@dataclass(frozen=True, slots=True)
class Until:
    """Where a reading of several partitions ends."""

    stop: StopAt | None = None
    """What the server is told."""
    moment: datetime | None = None
    """A time to come, of which servers know nothing."""

    def covers(self, message: Message) -> bool:
        """Whether a message does not lie behind the end."""
        return self.moment is None or message.time <= self.moment


def parse_until(text: str | None, *, follow: bool, now: datetime) -> Until:
    """Turn `latest`, an offset or a time, past or to come, into an end; None is none.

    Args:
        text: what was typed.
        follow: False: it ends at the newest message.
        now: the time.

    Raises:
        BadArgument: it is none of these, or is told what else to end at.
    """
    if text is None:
        return Until() if follow else Until(StopAt.latest())
    stop = parse_stop(text)
    if not follow and stop != StopAt.latest():
        message = f"--no-follow ends at the newest message, --until at {text}; leave one out"
        raise BadArgument(message)
    if stop.position is StopPosition.TIMESTAMP and datetime_from_ns(stop.value) > now:
        return Until(moment=datetime_from_ns(stop.value))
    return Until(stop)


def _offset(digits: str) -> int:
    if len(digits) > 19 or int(digits) >= 2**63:
        message = f"{digits} is larger than any offset"
        raise BadArgument(message)
    return int(digits)


def _moment(text: str, what: str) -> datetime:
    plain = text.strip()
    try:
        day = date.fromisoformat(plain.removesuffix("Z"))
    except ValueError:
        pass
    else:
        message = f"{text!r} is a whole day; add a time and a time zone: {day}T00:00Z"
        raise BadArgument(message)
    try:
        moment = datetime.fromisoformat(plain)
    except ValueError:
        message = f"{text!r} is not understood; write {what}"
        raise BadArgument(message) from None
    if moment.tzinfo is None:
        message = f"{text!r} has no time zone; add Z for UTC, or for example +01:00"
        raise BadArgument(message)
    if moment.timestamp() < 0:
        message = f"{text!r} lies before 1970, and so before every message"
        raise BadArgument(message)
    if moment.timestamp() * 1e9 > INT64_MAX:
        message = f"{text!r} lies after 2262, and so after every message"
        raise BadArgument(message)
    return moment


def parse_headers(pairs: Sequence[str]) -> dict[str, bytes] | None:
    """Turn `name=value` pairs into headers; None where there are none.

    Raises:
        BadArgument: one has no name or no equals sign.
    """
    headers: dict[str, bytes] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not name or not equals:
            message = f"{pair!r} is no header; write name=value"
            raise BadArgument(message)
        headers[name] = encode_argument(value)
    return headers or None


def encode_argument(text: str) -> bytes:
    """Turn an argument back into the bytes that were typed, UTF-8 or not."""
    return text.encode("utf-8", "surrogateescape")
