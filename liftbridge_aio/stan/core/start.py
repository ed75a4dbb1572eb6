"""The start of a subscription."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Self

from liftbridge_aio._core.arguments import INT64_MAX, check_integer, check_whole_number
from liftbridge_aio.errors import InvalidRequest, WrongType
from liftbridge_aio.wire.stan import StartPosition

_UINT64_MAX: Final = 2**64 - 1
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class StartAt:
    """Start of a subscription. Make one with a class method, never by hand.

    Servers ignore it if the durable or the queue group exists.
    """

    position: StartPosition
    value: int = 0
    """The sequence, the Unix nanoseconds, or the age in nanoseconds; else 0."""
    is_age: bool = False
    """True if `value` is counted back from the time of the subscribe."""

    @classmethod
    def new_only(cls) -> Self:
        """Only messages published after the subscription started."""
        return cls(StartPosition.NEW_ONLY)

    @classmethod
    def latest(cls) -> Self:
        """The newest stored message, then what follows."""
        return cls(StartPosition.LAST_RECEIVED)

    @classmethod
    def earliest(cls) -> Self:
        """The oldest message that is still stored, then what follows."""
        return cls(StartPosition.FIRST)

    @classmethod
    def sequence(cls, sequence: int) -> Self:
        """The message with this sequence; the oldest one if that is newer.

        If the channel does not have it yet, only messages published after the start are delivered,
        whatever their sequence.

        Raises:
            InvalidRequest: the sequence is less than 1, or larger than the wire can carry.
            WrongType: it is no whole number.
        """
        check_whole_number(sequence, "a sequence", 1, _UINT64_MAX)
        return cls(StartPosition.SEQUENCE_START, sequence)

    @classmethod
    def time(cls, moment: datetime | int) -> Self:
        """The first message with a timestamp at or after `moment`.

        The wire carries ages and the server has a clock of its own, so this is as exact as the
        clocks agree, less the time that the request takes.

        Args:
            moment: an aware `datetime`, or Unix nanoseconds.

        Raises:
            InvalidRequest: the `datetime` is naive, or the time lies before 1970.
            WrongType: it is neither.
        """
        if isinstance(moment, datetime):
            if moment.tzinfo is None:
                raise InvalidRequest(f"time() takes a datetime with a timezone, not {moment!r}")
            moment = (moment - _EPOCH) // _MICROSECOND * 1000
        check_integer(moment, "a time in Unix nanoseconds")
        if not 0 <= moment <= INT64_MAX:
            raise InvalidRequest("the time lies before 1970 or after 2262")
        return cls(StartPosition.TIME_DELTA_START, moment)

    @classmethod
    def ago(cls, delta: timedelta | float) -> Self:
        """The first message not older than `delta`, counted back from the time of the subscribe.

        Args:
            delta: a time span, or seconds.

        Raises:
            InvalidRequest: it is negative, or longer than the wire can carry.
            WrongType: it is neither.
        """
        if isinstance(delta, bool) or not isinstance(delta, timedelta | int | float):
            raise WrongType(f"ago() takes a timedelta or seconds, not {delta!r}")
        span = delta.total_seconds() if isinstance(delta, timedelta) else float(delta)
        if not 0 <= span <= INT64_MAX / 10**9:
            raise InvalidRequest(f"ago() takes a time span into the past, not {delta!r}")
        return cls.age(round(span * 10**9))

    @classmethod
    def age(cls, nanoseconds: int) -> Self:
        """The first message not older than so many nanoseconds at the time of the subscribe."""
        return cls(StartPosition.TIME_DELTA_START, max(nanoseconds, 0), is_age=True)

    def after(self, elapsed: int) -> StartAt:
        """Return the start of a subscription that was opened some time ago and received nothing.

        Args:
            elapsed: nanoseconds since it was opened.
        """
        if self.position in {StartPosition.NEW_ONLY, StartPosition.LAST_RECEIVED}:
            return StartAt.age(elapsed)
        return StartAt.age(self.value + elapsed) if self.is_age else self

    def request_fields(self, now: int) -> dict[str, Any]:
        """Return the fields of a SubscriptionRequest that is sent now.

        Args:
            now: Unix nanoseconds.
        """
        if self.position is StartPosition.SEQUENCE_START:
            return {"start_position": self.position, "start_sequence": self.value}
        if self.position is StartPosition.TIME_DELTA_START:
            age = self.value if self.is_age else max(now - self.value, 0)
            return {"start_position": self.position, "start_time_delta": age}
        return {"start_position": self.position}
