"""Divides a limit of messages in flight among connections, and backs off when handlers fail.

The consumer algorithm of NSQ ("Building Client Libraries"; go-nsq's consumer.go), without
transport, clock or chance. RDY is a level: the server pushes while fewer messages than that are in
flight on a connection. Methods return the levels to send, in order.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, NamedTuple, TypeVar

LinkT = TypeVar("LinkT", bound=Hashable)

_STARVED_FROM: Final = 0.85
"""Share of a level in flight from which a connection counts as starved."""
_RETRY: Final = 5.0
"""Seconds after which a connection without room is tried again."""
_PROBE_RETRY: Final = 1.0
"""Seconds after which backoff looks again for a connection to probe with."""


class Outcome(enum.Enum):
    """The answer to a message, as it counts for backoff."""

    FINISHED = "finished"
    REQUEUED = "requeued"
    REQUEUED_WITHOUT_BACKOFF = "requeued without backoff"


@dataclass(frozen=True, slots=True)
class FlowSettings:
    """The settings of a flow; durations in seconds.

    Attributes:
        max_in_flight: over all connections; 0 pauses.
        max_backoff: the longest backoff; 0 switches backoff off.
        backoff: the length of a backoff by its level, from 1 on.
        probe_first: give a new connection 1 first, and its share after its first message, as the
            guide has it; False: its share at once, as go-nsq does.
        redistribute: interval between looks at idle connections.
        idle: a connection without messages for that long loses its level where there are more
            connections than messages in flight.
        hold: the same for one that holds a level for that long.
    """

    max_in_flight: int
    max_backoff: float = 120.0
    backoff: Callable[[int], float] = lambda level: 2.0**level
    probe_first: bool = True
    redistribute: float = 5.0
    idle: float = 10.0
    hold: float = 30.0


class Level(NamedTuple, Generic[LinkT]):
    """A level to send to a connection."""

    link: LinkT
    rdy: int


@dataclass(slots=True)
class _Link:
    """A connection."""

    max_rdy: int
    rdy: int = 0
    in_flight: int = 0
    closing: bool = False
    probed: bool = False
    message_at: float = 0.0
    """When the last message came, or the connection."""
    raised_at: float = 0.0
    """When its level was last sent."""
    retry_at: float | None = None


class ReadyFlow(Generic[LinkT]):
    """Decides the RDY of each connection of a consumer.

    Owns the levels and counts of connections, and the state of backoff.

    Args:
        settings: of the flow.
        choose: chooses one of several connections.
        now: the time at which it begins, in seconds of any clock.
    """

    def __init__(
        self, settings: FlowSettings, choose: Callable[[Sequence[LinkT]], LinkT], now: float
    ) -> None:
        self._settings = settings
        self._max_in_flight = settings.max_in_flight
        self._choose = choose
        self._links: dict[LinkT, _Link] = {}
        self._level = 0
        self._backoff_until: float | None = None
        self._redistribute_at = now + settings.redistribute
        self._must_redistribute = False

    @property
    def backoff_level(self) -> int:
        """Failures that successes have not made up for; 0: no backoff."""
        return self._level

    @property
    def is_backing_off(self) -> bool:
        """True while nothing is delivered because handlers failed."""
        return self._backoff_until is not None

    @property
    def total_rdy(self) -> int:
        """The sum of all levels."""
        return sum(link.rdy for link in self._links.values())

    def rdy(self, link: LinkT) -> int:
        """Return the level of a connection; 0 if it is unknown."""
        known = self._links.get(link)
        return 0 if known is None else known.rdy

    @property
    def is_starved(self) -> bool:
        """True if a connection waits for answers to go on: its batch should be handled now."""
        return any(
            not link.closing and link.in_flight > 0 and link.in_flight >= link.rdy * _STARVED_FROM
            for link in self._links.values()
        )

    @property
    def share(self) -> int:
        """The level of each connection while all is well."""
        if not self._max_in_flight:
            return 0
        count = max(len(self._links), 1)
        return min(max(1, self._max_in_flight // count), self._max_in_flight)

    def next_at(self) -> float:
        """Return the time at which `tick` has something to do."""
        times = [link.retry_at for link in self._links.values() if link.retry_at is not None]
        if self._backoff_until is not None:
            times.append(self._backoff_until)
        return min([self._redistribute_at, *times])

    # Events

    def connected(self, link: LinkT, max_rdy: int, now: float) -> list[Level[LinkT]]:
        """Take in a connection that has subscribed; others lose what it gets."""
        self._links[link] = _Link(max_rdy, message_at=now)
        levels = []
        for each in self._links:
            if each != link:
                levels += self._update(each, now)
        return levels + self._update(link, now)

    def closing(self, link: LinkT) -> None:
        """Record that a connection gets no more messages, but may have some in flight."""
        if link in self._links:
            self._links[link].closing = True

    def closed(self, link: LinkT, now: float) -> list[Level[LinkT]]:
        """Forget a connection; its share goes to the others."""
        gone = self._links.pop(link, None)
        if gone is None:
            return []
        had_share = gone.rdy > 0 or gone.retry_at is not None
        if had_share and (len(self._links) == self._max_in_flight or self._level):
            self._must_redistribute = True
        levels = []
        for each in self._links:
            levels += self._update(each, now)
        return levels

    def delivered(self, link: LinkT, now: float) -> list[Level[LinkT]]:
        """Count a message that came."""
        known = self._links[link]
        known.in_flight += 1
        known.message_at = now
        if self._settings.probe_first and not known.probed and not self._level:
            known.probed = True
            return self._update(link, now)
        return []

    def answered(self, link: LinkT, outcome: Outcome | None, now: float) -> list[Level[LinkT]]:
        """Count a message that was answered; the levels go out before the answer.

        Args:
            link: its connection, which may be gone.
            outcome: how it was answered; None: it was not, its time is up.
            now: the time.
        """
        known = self._links.get(link)
        if known is not None and known.in_flight:
            known.in_flight -= 1
        return [] if outcome is None else self.signal(outcome, now)

    def signal(self, outcome: Outcome, now: float) -> list[Level[LinkT]]:
        """Begin, lengthen or shorten the backoff after a message was answered."""
        if not self._settings.max_backoff or self._backoff_until is not None:
            return []
        before = self._level
        if outcome is Outcome.FINISHED:
            self._level = max(before - 1, 0)
        elif outcome is Outcome.REQUEUED and (
            self._settings.backoff(before + 1) <= self._settings.max_backoff
        ):
            self._level += 1
        if self._level:
            length = min(self._settings.backoff(self._level), self._settings.max_backoff)
            self._backoff_until = now + length
            return [level for each in self._links for level in self._send(each, 0, now)]
        if before:
            return [level for each in self._links for level in self._update(each, now)]
        return []

    def limit(self, max_in_flight: int, now: float) -> list[Level[LinkT]]:
        """Set the limit of messages in flight; 0 pauses."""
        self._max_in_flight = max_in_flight
        levels = []
        for each, known in self._links.items():
            if known.rdy > self.share:
                levels += self._send(each, self.share, now)
        for each, known in reversed(self._links.items()):  # more connections than messages
            if known.rdy and self.total_rdy > max_in_flight:
                levels += self._send(each, 0, now)
        for each in self._links:
            levels += self._update(each, now)
        return levels

    def tick(self, now: float) -> list[Level[LinkT]]:
        """Do what is due: the end of a backoff, retries, redistribution."""
        levels: list[Level[LinkT]] = []
        if self._backoff_until is not None and now >= self._backoff_until:
            levels += self._probe(now)
        for each, known in self._links.items():
            if known.retry_at is not None and now >= known.retry_at:
                known.retry_at = None
                levels += self._update(each, now)
        if now >= self._redistribute_at:
            self._redistribute_at = now + self._settings.redistribute
            levels += self._redistribute(now)
        return levels

    # Levels

    def _update(self, link: LinkT, now: float) -> list[Level[LinkT]]:
        """Give a connection its share, unless backoff decides."""
        if self._level or self._backoff_until is not None:
            return []
        known = self._links[link]
        waits = self._settings.probe_first and not known.probed
        return self._send(link, min(1, self.share) if waits else self.share, now)

    def _send(self, link: LinkT, wanted: int, now: float) -> list[Level[LinkT]]:
        """Set a level within the limit."""
        known = self._links[link]
        if known.closing:
            return []
        known.retry_at = None
        wanted = min(wanted, known.max_rdy)
        possible = self._max_in_flight - self.total_rdy + known.rdy
        if 0 < possible < wanted:
            wanted = possible
        if possible <= 0 and wanted > 0:
            if known.rdy == 0:
                known.retry_at = now + _RETRY
            return []
        if wanted == known.rdy:
            return []
        known.rdy = wanted
        known.raised_at = now
        return [Level(link, wanted)]

    def _probe(self, now: float) -> list[Level[LinkT]]:
        """End a backoff with one message on one connection."""
        open_links = [each for each, known in self._links.items() if not known.closing]
        if not open_links or not self._max_in_flight:
            self._backoff_until = now + _PROBE_RETRY
            return []
        self._backoff_until = None
        return self._send(self._choose(open_links), 1, now)

    def _redistribute(self, now: float) -> list[Level[LinkT]]:
        """Take levels from idle connections where not all can have one, and give them to others."""
        if self._backoff_until is not None:
            return []
        count = len(self._links)
        needed = count > self._max_in_flight or (self._level and count > 1)
        if not (needed or self._must_redistribute):
            return []
        self._must_redistribute = False
        settings = self._settings
        levels = []
        for each, known in self._links.items():
            is_idle = now - known.message_at > settings.idle
            holds_long = now - known.raised_at > settings.hold
            if known.rdy > 0 and (is_idle or holds_long):
                levels += self._send(each, 0, now)
        available = (1 if self._level else self._max_in_flight) - self.total_rdy
        candidates = [
            each for each, known in self._links.items() if not known.rdy and not known.closing
        ]
        while candidates and available > 0:
            chosen = self._choose(candidates)
            candidates.remove(chosen)
            levels += self._send(chosen, 1, now)
            available -= 1
        return levels
