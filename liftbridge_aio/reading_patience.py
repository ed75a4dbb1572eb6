"""How long a reading tries to begin, or to go on after a break, before it gives up. Pure."""

from __future__ import annotations

import enum
from typing import Final

_STEADY_AFTER: Final = 1.0
"""Seconds after which a subscription that breaks counts as having stood."""
UNTRUSTED_FOR: Final = 5.0
"""Seconds for which TLS may fail once a reading stood, as certificates may just be being replaced;
before that it is not tried again."""


class GiveUp(enum.Enum):
    """Why another try makes no sense."""

    NOT_FOUND = "not found"
    """Brokers have said for too long that they do not know it."""
    UNTRUSTED = "untrusted"
    """TLS fails, and has for too long to be a certificate that is just being replaced."""
    OUT_OF_TIME = "out of time"


class ReadingPatience:
    """The tries of one reading. Times are the event loop's, in seconds.

    Args:
        now: when it began.
        start_timeout: for the first handshake, everything before it included.
        resume_timeout: to go on after a break.
        not_found_timeout: for which "not found" may be a broker that does not know yet.
    """

    def __init__(
        self, now: float, start_timeout: float, resume_timeout: float, not_found_timeout: float
    ) -> None:
        self.attempts = 0
        """Tries that failed since it last went well."""
        self.started = False
        """Whether the server has accepted the subscription at least once."""
        self._start_timeout = start_timeout
        self._resume_timeout = resume_timeout
        self._not_found_timeout = not_found_timeout
        self._began = now
        self._lost_since: float | None = None
        self._not_found_since: float | None = None
        self._untrusted_since: float | None = None

    @property
    def limit(self) -> float:
        """Seconds that it may take as a whole."""
        return self._resume_timeout if self.started else self._start_timeout

    def begin(self, now: float) -> None:
        """Take note that the reading begins."""
        self._began = now

    def left(self, now: float) -> float:
        """Seconds that the next step may take."""
        since = self._lost_since if self.started else self._began
        if since is None:
            return self._start_timeout
        return min(self._start_timeout, since + self.limit - now)

    def accepted(self, now: float) -> float:
        """Take note that the server has accepted it; return how many seconds it was down."""
        down = 0.0 if self._lost_since is None else now - self._lost_since
        self.started = True
        self._lost_since = self._not_found_since = self._untrusted_since = None
        return down

    def delivered(self) -> None:
        """Take note that it does what it is for."""
        self.attempts = 0

    def broke(self, stood: float) -> None:
        """Take note that it broke after having stood for so many seconds."""
        if stood > _STEADY_AFTER:
            self.attempts = 0

    def try_again(
        self, now: float, delay: float, *, not_found: bool, untrusted: bool = False
    ) -> GiveUp | None:
        """Decide, after a try was counted, whether to wait `delay` seconds for another one.

        Args:
            now: the time.
            delay: seconds to the next try.
            not_found: whether a broker said that it does not know the partition.
            untrusted: whether TLS failed.
        """
        if self._lost_since is None:
            self._lost_since = now
        if not not_found:
            self._not_found_since = None
        elif self._not_found_since is None:
            self._not_found_since = now
        if (
            self._not_found_since is not None
            and now + delay - self._not_found_since > self._not_found_timeout
        ):
            return GiveUp.NOT_FOUND
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
