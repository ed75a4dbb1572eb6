"""Backoff and retry settings, and the wait before the next attempt. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from ._core.arguments import check_integer, check_number, check_type
from .errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential backoff with full jitter.

    The ceiling of the n-th wait (n from 0) is `initial * factor ** n`, at most `maximum`; the wait
    is a random part of that. All in seconds.
    """

    initial: float = 0.05
    maximum: float = 2.0
    factor: float = 2.0

    def __post_init__(self) -> None:
        """Check the fields.

        Raises:
            InvalidRequest: the numbers are out of range or inconsistent.
            WrongType: one of them is not a number.
        """
        for name in ("initial", "maximum", "factor"):
            check_number(getattr(self, name), name)
        for name, holds, rule in (
            ("initial", 0 < self.initial < math.inf, "above 0 seconds and finite"),
            ("maximum", self.initial <= self.maximum < math.inf, "at least `initial` and finite"),
            ("factor", self.factor >= 1, "at least 1"),
        ):
            if not holds:
                raise InvalidRequest(f"{name} must be {rule}, not {getattr(self, name)}")

    def delay(self, attempt: int, fraction: float) -> float:
        """Return the seconds to wait before attempt `attempt + 1`.

        Args:
            attempt: the number of attempts that failed before this wait, from 0.
            fraction: a random number in [0, 1).
        """
        try:
            ceiling = min(self.maximum, self.initial * self.factor**attempt)
        except OverflowError:  # a power beyond what a float holds is beyond the maximum too
            ceiling = self.maximum
        return ceiling * fraction


_LAST_TRY: Final = 0.25
"""Seconds reserved for the last attempt of a call, so that it can be answered in time."""


def wait_before_try(delay: float, left: float) -> float | None:
    """Return the seconds to wait before the next attempt; None if no attempt is left.

    If too little time is left for the whole delay, the wait is shortened for one last attempt.

    Args:
        delay: seconds of the backoff.
        left: seconds that are left for the call.
    """
    if delay < left:
        return delay
    return left - _LAST_TRY if left > _LAST_TRY else None


DEFAULT_BACKOFF: Final = Backoff()
"""50 ms to 2 s, full jitter."""


@dataclass(frozen=True, slots=True)
class Retry:
    """Retries a publish whose outcome is unknown.

    **A message that is sent again may be stored twice**, unless `expected_offset` is given on a
    stream with optimistic concurrency control: then the log refuses the repeat, and the client
    reads the message at that offset back and compares it.
    """

    attempts: int = 5
    """Attempts in all, the first one included."""
    backoff: Backoff = DEFAULT_BACKOFF

    def __post_init__(self) -> None:
        """Check the fields.

        Raises:
            InvalidRequest: `attempts` is less than 1.
            WrongType: `attempts` is not a whole number, or `backoff` not a `Backoff`.
        """
        check_integer(self.attempts, "attempts")
        check_type(self.backoff, Backoff, "backoff is a Backoff")
        if self.attempts < 1:
            raise InvalidRequest(
                f"attempts includes the first one, so it must be at least 1, not {self.attempts}"
            )
