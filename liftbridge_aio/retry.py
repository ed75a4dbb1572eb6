"""How long to wait before the next try: pure arithmetic, no clock, no randomness of its own."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

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
        """Refuse what would wait for ever or not at all.

        Raises:
            InvalidRequest: the numbers do not fit together.
        """
        if not (0 < self.initial <= self.maximum < math.inf and self.factor >= 1):
            text = f"need 0 < initial <= maximum < infinity and factor >= 1, not {self!r}"
            raise InvalidRequest(text)

    def delay(self, attempt: int, fraction: float) -> float:
        """Seconds to wait before try `attempt + 1`.

        Args:
            attempt: how many tries failed before this wait, from 0.
            fraction: a random number in [0, 1).
        """
        try:
            ceiling = min(self.maximum, self.initial * self.factor**attempt)
        except OverflowError:  # a power beyond what a float holds is beyond the maximum too
            ceiling = self.maximum
        return ceiling * fraction


DEFAULT_BACKOFF: Final = Backoff()
"""50 ms to 2 s, full jitter."""


@dataclass(frozen=True, slots=True)
class Retry:
    """Asks a publish to be sent again when its outcome is unknown.

    **A message that is sent again may be stored twice**, unless `expected_offset` is given on a
    stream with optimistic concurrency control: then the log refuses the repeat, the client reads
    back what stands at that offset and compares.
    """

    attempts: int = 5
    """Tries in all, the first one included."""
    backoff: Backoff = DEFAULT_BACKOFF

    def __post_init__(self) -> None:
        """Refuse less than one try.

        Raises:
            InvalidRequest: `attempts` is less than 1.
        """
        if self.attempts < 1:
            text = f"attempts counts the first try too, so it is at least 1, not {self.attempts}"
            raise InvalidRequest(text)
