"""Options of a stream: frozen, and checked when created."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from typing import Final

from liftbridge_aio._core.arguments import INT32_MAX, check_type, check_whole_number
from liftbridge_aio.errors import InvalidRequest
from liftbridge_aio.options import Duration, seconds
from liftbridge_aio.retry import Backoff

DEFAULT_BACKOFF: Final = Backoff(initial=0.1, maximum=10.0, factor=2.0)
"""0.1 to 10 s, full jitter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions:
    """Timeouts and retries; durations in seconds.

    What is retried: statuses 500, 503 and 429, 502 and 504 of proxies, and lost connections. A
    plain append is not sent again after a lost connection, or a 502 or 504, as it could be stored
    twice.
    """

    timeout: Duration = 20.0
    """For a call with all its retries, and for the begin of a read."""
    resume_timeout: Duration = 120.0
    """Longest time in which a reader tries to go on after it was interrupted."""
    response_timeout: Duration = 10.0
    """Longest silence of the server in a request; then the connection counts as lost."""
    live_timeout: Duration = 90.0
    """Longest silence in a live read, after which the reader connects again. Servers answer
    long-polls, and end Server-Sent Events, about every minute."""
    max_retries: int = 30
    """Retries of a request after its first attempt; 0: none."""
    backoff: Backoff = DEFAULT_BACKOFF
    """Waits between attempts; a `Retry-After` of the server is waited for at least."""
    tls: ssl.SSLContext | None = None
    """For `https`; None: the system's authorities are trusted."""

    def __post_init__(self) -> None:
        """Check every field.

        Raises:
            InvalidRequest: a value is invalid.
            WrongType: a value has the wrong type.
        """
        for name in ("timeout", "resume_timeout", "response_timeout", "live_timeout"):
            if seconds(getattr(self, name), name) == 0:
                raise InvalidRequest(f"{name} must be longer than 0 seconds")
        check_whole_number(self.max_retries, "max_retries", 0, INT32_MAX)
        check_type(self.backoff, Backoff, "backoff is a Backoff")
        if self.tls is not None:
            check_type(self.tls, ssl.SSLContext, "tls must be an ssl.SSLContext")
