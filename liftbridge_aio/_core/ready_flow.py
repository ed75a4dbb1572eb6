"""Divides a limit of messages in flight among connections, and backs off when handlers fail.

The consumer algorithm of NSQ ("Building Client Libraries"; go-nsq's consumer.go), without
transport, clock or chance. RDY is a level: the server pushes while fewer messages than that are in
flight on a connection. Methods return the levels to send, in order.

Backoff is a machine of four phases (`Phase`), whose table is `TRANSITIONS`. While failures are left
(`backoff_level`), one connection at most has a level, and that level is 1. A probe is a connection,
not a message: whatever becomes of the message, the level stays until a result is in or the
connection is gone, and a connection that is gone leads back to SEEKING.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Generic, NamedTuple, TypeVar

LinkT = TypeVar("LinkT", bound=Hashable)

_STARVED_FROM: Final = 0.85
"""Share of a level in flight from which a connection counts as starved."""
_RETRY: Final = 5.0
"""Seconds after which a connection without room is tried again."""


class Outcome(enum.Enum):
    """The answer to a message, as it counts for backoff."""

    FINISHED = "finished"
    REQUEUED = "requeued"
    REQUEUED_WITHOUT_BACKOFF = "requeued without backoff"


class Phase(enum.Enum):
    """Where backoff stands."""

    FLOWING = "flowing"
    """No failures are left: each connection has its share."""
    WAITING = "waiting"
    """The timeout of a backoff runs: no connection has a level, and no result counts."""
    SEEKING = "seeking"
    """The timeout is over and no connection can be probed: none is open, or the flow is paused."""
    PROBING = "probing"
    """One connection has the level 1; the next result of any message counts."""


class Event(enum.Enum):
    """What moves backoff from one phase to another."""

    BACKED_OFF = "backed off"
    """A result is in, and failures are left."""
    RECOVERED = "recovered"
    """A result is in, and no failures are left."""
    ELAPSED = "elapsed"
    """The timeout of the backoff is over."""
    OPENED = "opened"
    """A connection is new, or the flow was resumed."""
    LOST = "lost"
    """The probed connection delivers nothing more: it was closed or is closing, or was paused."""
    IDLE = "idle"
    """The probed connection delivered nothing for long, and another one can be probed."""


TRANSITIONS: Final[Mapping[Phase, Mapping[Event, Phase]]] = {
    Phase.FLOWING: {Event.BACKED_OFF: Phase.WAITING},
    Phase.WAITING: {Event.ELAPSED: Phase.SEEKING},
    Phase.SEEKING: {
        Event.BACKED_OFF: Phase.WAITING,
        Event.RECOVERED: Phase.FLOWING,
        Event.OPENED: Phase.SEEKING,
    },
    Phase.PROBING: {
        Event.BACKED_OFF: Phase.WAITING,
        Event.RECOVERED: Phase.FLOWING,
        Event.LOST: Phase.SEEKING,
        Event.IDLE: Phase.SEEKING,
    },
}
"""The phase that follows an event; an event that is not listed has no effect.

Entering SEEKING becomes PROBING at once if there is a connection to probe.
"""


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
    """True once a message came while no failures were left: the connection gets its whole share."""
    message_at: float = 0.0
    """When the last message came, or the connection."""
    raised_at: float = 0.0
    """When its level was last sent."""
    retry_at: float | None = None
    """When to try to give it its share; None: it has a level, or must not have one."""

    @property
    def can_deliver(self) -> bool:
        """True if a level has an effect."""
        return not self.closing and self.max_rdy > 0


class ReadyFlow(Generic[LinkT]):
    """Decides the RDY of each connection of a consumer.

    Owns the levels and counts of connections, and the state of backoff.

    Args:
        settings: of the flow.
        choose: chooses one of several connections.
        now: the time at which it begins, in seconds of any clock.
        in_flight: counts the messages in flight on a connection; None: `delivered` and `answered`
            do.
    """

    def __init__(
        self,
        settings: FlowSettings,
        choose: Callable[[Sequence[LinkT]], LinkT],
        now: float,
        in_flight: Callable[[LinkT], int] | None = None,
    ) -> None:
        self._settings = settings
        self._choose = choose
        self._in_flight = self._counted if in_flight is None else in_flight
        # State, changed only by events.
        self._max_in_flight = settings.max_in_flight
        self._links: dict[LinkT, _Link] = {}
        self._phase = Phase.FLOWING
        self._level = 0
        self._backoff_until = now
        """The end of the timeout, while WAITING."""
        self._probe: LinkT | None = None
        """The probed connection, while PROBING."""
        self._tried: set[LinkT] = set()
        """Connections that were probed in vain since the last result; others are probed first."""
        self._redistribute_at = now + settings.redistribute
        self._must_redistribute = False
        self._is_short = False
        """True if a connection may have less than its share, because others have messages in flight
        or there are more connections than messages."""

    @property
    def is_short(self) -> bool:
        """True if a connection waits for room: for answers of others, or for their levels."""
        return self._is_short and self._phase is Phase.FLOWING and self._max_in_flight > 0

    @property
    def backoff_level(self) -> int:
        """Failures that successes have not made up for; 0: no backoff."""
        return self._level

    @property
    def phase(self) -> Phase:
        """Where backoff stands."""
        return self._phase

    @property
    def is_backing_off(self) -> bool:
        """True while nothing is delivered because handlers failed."""
        return self._phase is Phase.WAITING

    def backoff_left(self, now: float) -> float:
        """Return the seconds for which no result counts; 0 while none are left."""
        return max(self._backoff_until - now, 0.0) if self._phase is Phase.WAITING else 0.0

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
        if self._phase is Phase.WAITING:
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
        return levels + self._update(link, now) + self._on(Event.OPENED, now)

    def closing(self, link: LinkT, now: float) -> list[Level[LinkT]]:
        """Record that a connection gets no more messages, but may have some in flight."""
        known = self._links.get(link)
        if known is None:
            return []
        known.closing, known.rdy, known.retry_at = True, 0, None
        return self._on(Event.LOST, now) if link == self._probe else []

    def closed(self, link: LinkT, now: float) -> list[Level[LinkT]]:
        """Forget a connection; its share goes to the others."""
        gone = self._links.pop(link, None)
        if gone is None:
            return []
        self._tried.discard(link)
        had_share = gone.rdy > 0 or gone.retry_at is not None
        if had_share and len(self._links) == self._max_in_flight:
            self._must_redistribute = True
        levels = []
        for each in self._links:
            levels += self._update(each, now)
        return levels + (self._on(Event.LOST, now) if link == self._probe else [])

    def delivered(self, link: LinkT, now: float) -> list[Level[LinkT]]:
        """Count a message that came."""
        known = self._links[link]
        known.in_flight += 1
        known.message_at = now
        if self._settings.probe_first and not known.probed and self._phase is Phase.FLOWING:
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
        levels = [] if outcome is None else self.signal(outcome, now)
        return levels + self._fill(now) if self.is_short else levels

    def signal(self, outcome: Outcome, now: float) -> list[Level[LinkT]]:
        """Begin, lengthen or shorten the backoff after a message was answered.

        One result counts for each timeout: none does while it runs.
        """
        if not self._settings.max_backoff or self._phase is Phase.WAITING:
            return []
        if outcome is Outcome.FINISHED:
            self._level = max(self._level - 1, 0)
        elif outcome is Outcome.REQUEUED and (
            self._settings.backoff(self._level + 1) <= self._settings.max_backoff
        ):
            self._level += 1
        return self._on(Event.BACKED_OFF if self._level else Event.RECOVERED, now)

    def pass_on(self, idle: Iterable[LinkT], now: float) -> list[Level[LinkT]]:
        """Take the levels of connections that have nothing to deliver, and give them to others."""
        if not self.is_short:
            return []
        return [level for link in idle for level in self._send(link, 0, now)] + self._fill(now)

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
        return levels + self._on(Event.OPENED if max_in_flight else Event.LOST, now)

    def tick(self, now: float) -> list[Level[LinkT]]:
        """Do what is due: the end of a backoff, retries, redistribution."""
        levels: list[Level[LinkT]] = []
        if self._phase is Phase.WAITING and now >= self._backoff_until:
            levels += self._on(Event.ELAPSED, now)
        for each, known in self._links.items():
            if known.retry_at is not None and now >= known.retry_at:
                known.retry_at = None
                levels += self._update(each, now)
        if now >= self._redistribute_at:
            self._redistribute_at = now + self._settings.redistribute
            levels += self._redistribute(now)
        return levels

    # Phases

    def _on(self, event: Event, now: float) -> list[Level[LinkT]]:
        """Enter the phase that follows an event."""
        phase = TRANSITIONS[self._phase].get(event)
        if phase is None:
            return []
        self._phase = phase
        if phase is Phase.SEEKING:
            return self._seek(now)
        self._probe = None
        self._tried.clear()
        if phase is Phase.FLOWING:
            return [level for each in self._links for level in self._update(each, now)]
        self._backoff_until = now + min(
            self._settings.backoff(self._level), self._settings.max_backoff
        )
        return [level for each in self._links for level in self._send(each, 0, now)]

    def _seek(self, now: float) -> list[Level[LinkT]]:
        """Probe a connection if there is one; each in turn, until a result is in."""
        levels: list[Level[LinkT]] = []
        if self._probe is not None:
            self._tried.add(self._probe)
            if self._probe in self._links:
                levels += self._send(self._probe, 0, now)
            self._probe = None
        self._tried &= self._links.keys()
        candidates = [each for each, known in self._links.items() if known.can_deliver]
        if not candidates or not self._max_in_flight:
            return levels
        untried = [each for each in candidates if each not in self._tried]
        if not untried:
            self._tried.clear()
        self._probe = self._choose(untried or candidates)
        self._phase = Phase.PROBING
        self._redistribute_at = now + self._settings.redistribute  # time to deliver something
        return levels + self._send(self._probe, 1, now)

    # Levels

    def _update(self, link: LinkT, now: float) -> list[Level[LinkT]]:
        """Give a connection its share, unless backoff decides."""
        if self._phase is not Phase.FLOWING:
            return []
        return self._send(link, self._wanted(self._links[link]), now)

    def _wanted(self, known: _Link) -> int:
        """Return the level of a connection if there is room for it."""
        waits = self._settings.probe_first and not known.probed
        return min(1 if waits else known.max_rdy, self.share, known.max_rdy)

    def _counted(self, link: LinkT) -> int:
        return self._links[link].in_flight

    def _room(self, link: LinkT) -> int:
        """Return the level that a connection may have, so that the limit holds.

        What others have in flight counts, even if their level is lower by now.
        """
        if self._phase is not Phase.FLOWING:
            return self._max_in_flight - self.total_rdy + self._links[link].rdy
        taken = sum(
            max(known.rdy, self._in_flight(each))
            for each, known in self._links.items()
            if each != link
        )
        return self._max_in_flight - taken

    def _send(self, link: LinkT, wanted: int, now: float) -> list[Level[LinkT]]:
        """Set a level within the limit."""
        known = self._links[link]
        if known.closing:
            return []
        known.retry_at = None
        wanted = min(wanted, known.max_rdy)
        granted = min(wanted, max(self._room(link), 0))
        if granted < self._wanted(known):
            self._is_short = True
        if granted == 0 < wanted:
            known.retry_at = now + _RETRY
        if granted == known.rdy:
            return []
        known.rdy = granted
        known.raised_at = now
        return [Level(link, granted)]

    def _redistribute(self, now: float) -> list[Level[LinkT]]:
        """Take levels from idle connections where not all can have one, and give them to others."""
        if self._probe is not None:
            others = any(
                known.can_deliver for each, known in self._links.items() if each != self._probe
            )
            idle = not self._in_flight(self._probe)
            if others and idle and self._is_unused(self._links[self._probe], now):
                return self._on(Event.IDLE, now)
            return []
        if self._phase is not Phase.FLOWING:
            return []
        if not (len(self._links) > self._max_in_flight or self._must_redistribute):
            return []
        self._must_redistribute = False
        levels = []
        for each, known in self._links.items():
            if known.rdy > 0 and self._is_unused(known, now):
                levels += self._send(each, 0, now)
        return levels + self._fill(now)

    def _fill(self, now: float) -> list[Level[LinkT]]:
        """Raise levels that are below the share of their connections, as far as there is room."""
        levels: list[Level[LinkT]] = []
        candidates = [
            each
            for each, known in self._links.items()
            if known.can_deliver and known.rdy < self._wanted(known)
        ]
        self._is_short = bool(candidates)
        while candidates:
            chosen = self._choose(candidates)
            candidates.remove(chosen)
            if self._room(chosen) <= self._links[chosen].rdy:
                break
            levels += self._update(chosen, now)
        return levels

    def _is_unused(self, known: _Link, now: float) -> bool:
        """Return True if a connection that has a level should pass it on."""
        is_idle = now - known.message_at > self._settings.idle
        return is_idle or now - known.raised_at > self._settings.hold
