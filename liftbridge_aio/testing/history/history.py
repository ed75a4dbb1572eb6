"""What happened to messages, event by event, as a test saw it from outside.

Producers tell what they sent and how each publish ended, readers what they were given.
`history_check.check_history` then says what the log lost, repeated, reordered or invented.

    history = History(clock=time.monotonic)
    history.sent(b"1", partition=0)
    history.acked(b"1", partition=0)
    history.delivered(b"1", partition=0)
    history.finished(partition=0)
    check_history(history).raise_for_defects()

One history is about one stream. Messages are told apart by their values, never by their offsets, so
give each its own value: `producer-round-number` for instance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum, unique
from typing import NamedTuple


@unique
class EventKind(StrEnum):
    """What an event says."""

    SENT = "sent"
    """A producer is about to publish a value to a partition."""
    ACKED = "acked"
    """The publish ended with an ack: the message is stored."""
    UNKNOWN = "unknown"
    """The publish ended and nobody knows how: the message may be stored or not."""
    REFUSED = "refused"
    """The publish failed for certain: the message is not stored."""
    DELIVERED = "delivered"
    """A reader was given a message."""
    FINISHED = "finished"
    """A reader has read a partition up to its end, after everything was published."""


OUTCOMES = frozenset({EventKind.ACKED, EventKind.UNKNOWN, EventKind.REFUSED})
READINGS = frozenset({EventKind.DELIVERED, EventKind.FINISHED})


class Event(NamedTuple):
    """One event of a history."""

    kind: EventKind
    time: float
    """Seconds of any clock that all recorders share. It sorts timelines and decides nothing."""
    actor: str
    """The producer or the reader."""
    partition: int
    value: bytes = b""
    """The value of the message; empty for FINISHED."""
    key: bytes | None = None
    offset: int | None = None
    """Where the message was delivered from; shown in timelines and never judged."""


class EventRecorder:
    """Turns what producers and readers tell into events.

    Record `sent` before the call that publishes, so that what was delivered was sent for certain.
    A send without an outcome, as a killed process leaves it, counts as unknown.

    The order of the sends of one producer counts, and so does the order in which one reader was
    given the messages of one partition. The order of everything else does not.
    """

    def __init__(
        self,
        record: Callable[[Event], object],
        clock: Callable[[], float] | None = None,
    ) -> None:
        """Choose what takes the events.

        Args:
            record: takes each event.
            clock: tells the time of events that come without one, in seconds.
        """
        self._record = record
        self._clock = clock

    def sent(
        self,
        value: bytes,
        partition: int,
        *,
        producer: str = "producer",
        key: bytes | None = None,
        time: float | None = None,
    ) -> None:
        """Record that `producer` is about to publish `value`.

        Args:
            value: what is published; the same value again is one more message that may come.
            partition: where it shall be stored.
            producer: who publishes; order is promised to one producer.
            key: the key of the message; empty is none.
            time: seconds; without it, that of the clock.

        Raises:
            ValueError: there is neither a time nor a clock.
        """
        moment = self._now() if time is None else time
        self._record(Event(EventKind.SENT, moment, producer, partition, value, key))

    def acked(
        self,
        value: bytes,
        partition: int,
        *,
        producer: str = "producer",
        time: float | None = None,
    ) -> None:
        """Record that a publish of `value` by `producer` was acked.

        Args:
            value: what was sent.
            partition: where it was sent to.
            producer: who sent it.
            time: seconds; without it, that of the clock.

        Raises:
            ValueError: there is neither a time nor a clock.
        """
        self._outcome(EventKind.ACKED, value, partition, producer, time)

    def unknown(
        self,
        value: bytes,
        partition: int,
        *,
        producer: str = "producer",
        time: float | None = None,
    ) -> None:
        """Record that nobody knows whether a publish of `value` by `producer` was stored.

        It may come or not. Whether it may come twice is a matter of the guarantee.

        Args:
            value: what was sent.
            partition: where it was sent to.
            producer: who sent it.
            time: seconds; without it, that of the clock.

        Raises:
            ValueError: there is neither a time nor a clock.
        """
        self._outcome(EventKind.UNKNOWN, value, partition, producer, time)

    def refused(
        self,
        value: bytes,
        partition: int,
        *,
        producer: str = "producer",
        time: float | None = None,
    ) -> None:
        """Record that a publish of `value` by `producer` was certainly not stored.

        Args:
            value: what was sent.
            partition: where it was sent to.
            producer: who sent it.
            time: seconds; without it, that of the clock.

        Raises:
            ValueError: there is neither a time nor a clock.
        """
        self._outcome(EventKind.REFUSED, value, partition, producer, time)

    def delivered(
        self,
        value: bytes,
        partition: int,
        *,
        reader: str = "reader",
        key: bytes | None = None,
        offset: int | None = None,
        time: float | None = None,
    ) -> None:
        """Record that `reader` was given `value`.

        Args:
            value: the value of the message.
            partition: where it came from.
            reader: who was given it; members of a group have names of their own.
            key: the key it came with, empty if it had none; compared with that of the send if it
                is told.
            offset: where it lies; for people who read timelines.
            time: seconds; without it, that of the clock.

        Raises:
            ValueError: there is neither a time nor a clock.
        """
        moment = self._now() if time is None else time
        self._record(Event(EventKind.DELIVERED, moment, reader, partition, value, key, offset))

    def finished(
        self, partition: int, *, reader: str = "reader", time: float | None = None
    ) -> None:
        """Record that `reader` has read `partition` from its beginning to its end.

        Call it when everything was published and the reader has reached the end of the log. From
        then on what is acked and did not come is lost. It is needed for empty partitions too.

        Args:
            partition: what was read.
            reader: who read it.
            time: seconds; without it, that of the clock.

        Raises:
            ValueError: there is neither a time nor a clock.
        """
        moment = self._now() if time is None else time
        self._record(Event(EventKind.FINISHED, moment, reader, partition))

    def _outcome(
        self, kind: EventKind, value: bytes, partition: int, producer: str, time: float | None
    ) -> None:
        moment = self._now() if time is None else time
        self._record(Event(kind, moment, producer, partition, value))

    def _now(self) -> float:
        if self._clock is None:
            raise ValueError("an event needs a time, or the recorder a clock")
        return self._clock()


class History(EventRecorder):
    """Events in memory.

    Recording is one append to a list, so several threads may record at once, each as producers
    and readers of its own. Check it when they are done.
    """

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        """Begin an empty history.

        Args:
            clock: tells the time of events that come without one, in seconds.
        """
        self._events: list[Event] = []
        self.torn: list[str] = []
        """Lines at the ends of files that were cut off in the middle, see `read_history`."""
        super().__init__(self._events.append, clock)

    @property
    def events(self) -> Sequence[Event]:
        """The events, in the order of recording."""
        return self._events

    def extend(self, events: Iterable[Event]) -> None:
        """Add the events of another part.

        What one producer sent, or one reader was given, must be added in its order.
        """
        self._events.extend(events)

    def __repr__(self) -> str:
        return f"<History of {len(self._events):,} events>"
