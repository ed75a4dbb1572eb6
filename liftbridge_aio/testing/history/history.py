"""The events of a test run: sends, their outcomes and deliveries.

Producers record what they sent and how each publish ended; readers record what they received.
`check_history` then reports the messages that were lost, repeated, reordered or invented.

    history = History(clock=time.monotonic)
    history.sent(b"1", partition=0)
    history.acked(b"1", partition=0)
    history.delivered(b"1", partition=0)
    history.finished(partition=0)
    check_history(history).raise_for_defects()

A history covers one stream. Messages are identified by their values, never by their offsets, so
give each message a unique value, for example `producer-round-number`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum, unique
from typing import NamedTuple


@unique
class EventKind(StrEnum):
    """The kind of an event."""

    SENT = "sent"
    """A producer is about to publish a value to a partition."""
    ACKED = "acked"
    """The publish ended with an ack: the message is stored."""
    UNKNOWN = "unknown"
    """The publish ended with an unknown outcome: the message may or may not be stored."""
    REFUSED = "refused"
    """The publish failed and the message is certainly not stored."""
    DELIVERED = "delivered"
    """A reader received a message."""
    FINISHED = "finished"
    """A reader has read a partition to its end after all publishing was done."""


OUTCOMES = frozenset({EventKind.ACKED, EventKind.UNKNOWN, EventKind.REFUSED})
READINGS = frozenset({EventKind.DELIVERED, EventKind.FINISHED})


class Event(NamedTuple):
    """One event of a history."""

    kind: EventKind
    time: float
    """Seconds of a clock that all recorders share; used only to sort timelines."""
    actor: str
    """The name of the producer or reader."""
    partition: int
    value: bytes = b""
    """The value of the message; empty for FINISHED."""
    key: bytes | None = None
    offset: int | None = None
    """The offset of the delivered message; shown in timelines and never checked."""


class EventRecorder:
    """The methods with which producers and readers record events.

    Record `sent` before the publish call, so that every delivered message has a recorded send.
    A send without an outcome, for example of a killed process, counts as unknown.

    Two orders matter: that of the sends of one producer, and that of the deliveries of one
    partition to one reader. Any other order is ignored.
    """

    def __init__(
        self,
        record: Callable[[Event], object],
        clock: Callable[[], float] | None = None,
    ) -> None:
        """Set the callback that receives the events.

        Args:
            record: called with each event.
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
            value: the published value; recording it again adds another message.
            partition: the partition it is published to.
            producer: the name of the producer; order is checked per producer.
            key: the key of the message; empty for none.
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
        """Record that a publish of `value` by `producer` ended with an unknown outcome.

        The message may or may not be delivered. The guarantee decides if it may be delivered twice.

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
        """Record that a publish of `value` by `producer` failed and was certainly not stored.

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
        """Record that `reader` received `value`.

        Args:
            value: the value of the message.
            partition: the partition it was read from.
            reader: the name of the reader; each member of a group has its own name.
            key: the key of the message, empty if it had none; compared with that of the send unless
                it is None.
            offset: the offset of the message, shown in timelines.
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

        Call it after all publishing is done and the reader has reached the end of the log. From
        then on acked messages that were not delivered count as lost. Call it for empty partitions
        too.

        Args:
            partition: the partition that was read.
            reader: the name of the reader.
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

    Recording is one append to a list, so several threads may record concurrently, each under its
    own producer and reader names. Check the history after they have finished.
    """

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        """Create an empty history.

        Args:
            clock: tells the time of events that come without one, in seconds.
        """
        self._events: list[Event] = []
        self.torn: list[str] = []
        """Truncated last lines of files, see `read_history`."""
        super().__init__(self._events.append, clock)

    @property
    def events(self) -> Sequence[Event]:
        """The events in the order of recording."""
        return self._events

    def extend(self, events: Iterable[Event]) -> None:
        """Append the events of another part.

        The sends of one producer, and the deliveries to one reader, must be added in their order.
        """
        self._events.extend(events)

    def __repr__(self) -> str:
        return f"<History of {len(self._events):,} events>"
