"""Decides when a stream counts as gone: once servers have denied it for long enough. Pure.

A server that was restarted answers before it knows its streams: a lone v1.9.0 knows none for about
two seconds. And brokers learn of a new stream one after the other. So one "not found" proves
nothing, and neither do those from before a connection broke.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple


class Incarnation(NamedTuple):
    """A server as long as no connection to it breaks, so that it was not restarted meanwhile."""

    address: str
    since: float
    """Loop time at which the client first connected to it."""


@dataclass(slots=True)
class _Denials:
    """The uninterrupted denials of one incarnation of a server, in loop time."""

    by: Incarnation
    first: float
    last: float
    count: int = 1


class Absence:
    """Counts the denials of a stream that is looked for.

    The stream is gone once the same incarnation of a server has denied it for `timeout` seconds,
    counted from its first denial, and no server knew it in between.
    """

    __slots__ = ("_by_address", "_latest", "_timeout", "interrupted")

    def __init__(self, timeout: float) -> None:
        self.interrupted = False
        """True if a server was lost while the stream was looked for."""
        self._timeout = timeout
        self._by_address: dict[str, _Denials] = {}
        self._latest: _Denials | None = None

    def denied(self, now: float, by: Incarnation) -> None:
        """Record that a server does not know the stream."""
        denials = self._by_address.get(by.address)
        if denials is None or denials.by != by:
            self.interrupted = self.interrupted or denials is not None
            denials = self._by_address[by.address] = _Denials(by, now, now)
        else:
            denials.last = now
            denials.count += 1
        self._latest = denials

    def interrupt(self) -> None:
        """Record that a server was lost or could not be reached: the count starts again."""
        self.known()
        self.interrupted = True

    def known(self) -> None:
        """Record that a server knows the stream."""
        self.interrupted = False
        self._by_address.clear()
        self._latest = None

    @property
    def denied_by(self) -> Incarnation | None:
        """The server that denied the stream last; None if one knew it or was lost since."""
        return None if self._latest is None else self._latest.by

    @property
    def seconds(self) -> float:
        """Seconds for which the server that answered last has denied the stream."""
        return 0.0 if self._latest is None else self._latest.last - self._latest.first

    @property
    def remaining(self) -> float:
        """Seconds until the stream counts as gone if it stays denied; infinite if it is not."""
        return math.inf if self._latest is None else self._timeout - self.seconds

    @property
    def confirmed(self) -> bool:
        """True if the stream counts as gone."""
        return self.remaining <= 0

    @property
    def plausible(self) -> bool:
        """True if a stream that the client has never seen counts as not existing.

        A server that has just started may not know its streams yet; of one that has been up for
        `timeout` seconds the second denial is enough.
        """
        if self._latest is None:
            return False
        up_for = self._latest.last - self._latest.by.since
        return self.confirmed or (self._latest.count > 1 and up_for >= self._timeout)
