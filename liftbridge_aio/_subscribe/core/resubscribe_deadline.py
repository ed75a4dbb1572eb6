"""Decides how long to retry a first subscribe, and a resubscribe after a break. Pure."""

from __future__ import annotations

import enum
from typing import Final

_STEADY_AFTER: Final = 1.0
"""Seconds after which a subscription that breaks counts as having worked."""
UNTRUSTED_FOR: Final = 5.0
"""Seconds for which TLS failures are retried after a break, as certificates may be replaced just
then; a first subscribe does not retry them."""


class GiveUp(enum.Enum):
    """The reason why there is no other try."""

    UNTRUSTED = "untrusted"
    """TLS fails, for longer than it takes to replace a certificate."""
    OUT_OF_TIME = "out of time"


class ResubscribeDeadline:
    """The tries of one reader. Times are loop times, in seconds.

    Args:
        now: when it began.
        start_timeout: seconds until the server has accepted the first time.
        resume_timeout: seconds to resubscribe after a break.
    """

    def __init__(self, now: float, start_timeout: float, resume_timeout: float) -> None:
        self.attempts = 0
        """Failed tries since the last success."""
        self.started = False
        """True once the server has accepted the subscription."""
        self._start_timeout = start_timeout
        self._resume_timeout = resume_timeout
        self._began = now
        self._lost_since: float | None = None
        self._untrusted_since: float | None = None

    @property
    def limit(self) -> float:
        """Seconds for all tries together."""
        return self._resume_timeout if self.started else self._start_timeout

    def begin(self, now: float) -> None:
        """Note that the reader begins."""
        self._began = now

    def left(self, now: float) -> float:
        """Return how many seconds the next step may take."""
        since = self._lost_since if self.started else self._began
        if since is None:
            return self._start_timeout
        return min(self._start_timeout, since + self.limit - now)

    def accepted(self, now: float) -> float:
        """Note that the server has accepted; return how many seconds the subscription was down."""
        down = 0.0 if self._lost_since is None else now - self._lost_since
        self.started = True
        self._lost_since = self._untrusted_since = None
        return down

    def delivered(self) -> None:
        """Note that messages were received."""
        self.attempts = 0

    def broke(self, stood: float) -> None:
        """Note a break after so many seconds."""
        if stood > _STEADY_AFTER:
            self.attempts = 0

    def try_again(self, now: float, delay: float, *, untrusted: bool = False) -> GiveUp | None:
        """Return None if there is another try in `delay` seconds, else why there is none.

        Args:
            now: the time.
            delay: seconds to the next try.
            untrusted: True if TLS failed.
        """
        if self._lost_since is None:
            self._lost_since = now
        if not untrusted:
            self._untrusted_since = None
        elif self._untrusted_since is None:
            self._untrusted_since = now
        if self._untrusted_since is not None and (
            not self.started or now + delay - self._untrusted_since > UNTRUSTED_FOR
        ):
            return GiveUp.UNTRUSTED
        since = self._lost_since if self.started else self._began
        return GiveUp.OUT_OF_TIME if now + delay - since > self.limit else None
