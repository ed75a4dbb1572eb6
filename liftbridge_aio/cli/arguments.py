"""Parse arguments: positions, durations, headers. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Final

from liftbridge_aio._core.arguments import INT64_MAX
from liftbridge_aio.model import Message, StartAt, StopAt, StopPosition, datetime_from_ns

_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_DURATION_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhdw])")

_STARTS: Final = "new, latest, earliest, an offset, a time, -5m"

DURATION_HELP: Final = "seconds, or with units: 500ms, 90s, 1h30m, 7d"


class BadArgument(ValueError):
    """An argument is invalid; the text says what is valid."""


def parse_duration(text: str) -> float:
    """Parse `90`, `90s`, `1h30m` or `500ms` into seconds.

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
    raise BadArgument(f"{text!r} is not a duration; write {DURATION_HELP}")


def parse_start(text: str, *, choices: str = _STARTS) -> StartAt:
    """Parse `new`, `latest`, `earliest`, an offset, a time or `-5m` into a start position.

    Args:
        text: the argument.
        choices: what the error names.

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
            raise BadArgument(f"{text!r} is before the earliest possible time") from None
    return StartAt.time(_moment(text, choices))


def parse_stop(text: str) -> StopAt:
    """Parse `latest`, an offset or a time into a stop position.

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
    """A start a number of messages before the end of each partition."""

    count: int


def parse_from(text: str) -> StartAt | LastMessages:
    """Parse `last:10`, or what `parse_start` accepts, into a start position.

    Raises:
        BadArgument: it is none of these.
    """
    word, colon, number = text.strip().lower().partition(":")
    if colon and word == "last":
        if not number.isdecimal() or not _offset(number):
            raise BadArgument(f"{text!r} is invalid; write last:10 for the last ten messages")
        return LastMessages(_offset(number))
    return parse_start(text, choices=f"{_STARTS}, or last:10")


@dataclass(frozen=True, slots=True)
class Until:
    """The end of a subscription to several partitions."""

    stop: StopAt | None = None
    """The stop position for the server."""
    moment: datetime | None = None
    """A future time, which servers cannot stop at."""

    def covers(self, message: Message) -> bool:
        """Return True if a message is not after the end."""
        return self.moment is None or message.time <= self.moment


def parse_until(text: str | None, *, follow: bool, now: datetime) -> Until:
    """Parse `latest`, an offset or a time, past or future, into an end; None is no end.

    Args:
        text: the argument.
        follow: False: end at the newest message.
        now: the present time.

    Raises:
        BadArgument: it is none of these, or contradicts `follow`.
    """
    if text is None:
        return Until() if follow else Until(StopAt.latest())
    stop = parse_stop(text)
    if not follow and stop != StopAt.latest():
        raise BadArgument(
            f"--no-follow ends at the newest message, --until at {text}; give only one of them"
        )
    if stop.position is StopPosition.TIMESTAMP and datetime_from_ns(stop.value) > now:
        return Until(moment=datetime_from_ns(stop.value))
    return Until(stop)


def _offset(digits: str) -> int:
    if len(digits) > 19 or int(digits) >= 2**63:
        raise BadArgument(f"{digits} is larger than any offset")
    return int(digits)


def _moment(text: str, what: str) -> datetime:
    plain = text.strip()
    try:
        day = date.fromisoformat(plain.removesuffix("Z"))
    except ValueError:
        pass
    else:
        raise BadArgument(f"{text!r} is a date; add a time and a time zone: {day}T00:00Z")
    try:
        moment = datetime.fromisoformat(plain)
    except ValueError:
        raise BadArgument(f"{text!r} is invalid; write {what}") from None
    if moment.tzinfo is None:
        raise BadArgument(f"{text!r} has no time zone; add Z for UTC, or for example +01:00")
    if moment.timestamp() < 0:
        raise BadArgument(f"{text!r} is before 1970, and so before every message")
    if moment.timestamp() * 1e9 > INT64_MAX:
        raise BadArgument(f"{text!r} is after 2262, and so after every message")
    return moment


def parse_headers(pairs: Sequence[str]) -> dict[str, bytes] | None:
    """Parse `name=value` pairs into headers; None if there are none.

    Raises:
        BadArgument: one has no name or no equals sign.
    """
    headers: dict[str, bytes] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not name or not equals:
            raise BadArgument(f"{pair!r} is not a header; write name=value")
        headers[name] = encode_argument(value)
    return headers or None


def encode_argument(text: str) -> bytes:
    """Return the bytes of an argument as they were typed, UTF-8 or not."""
    return text.encode("utf-8", "surrogateescape")
