"""Messages sent and delivered, by value. Pure: times come in as arguments."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from liftbridge_aio import AckPolicy, Message
from liftbridge_aio.testing import Event, EventKind, History

END: Final = b"end-"
"""Prefix of the values that are published after everything else."""


@dataclass(frozen=True, slots=True)
class Place:
    """One partition of a stream, and what is published to it."""

    stream: str
    partition: int
    policy: AckPolicy

    def __str__(self) -> str:
        return f"{self.stream}/{self.partition}"


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that must not happen while the servers do what they should."""

    time: float
    """Of the monotonic clock."""
    text: str
    excusable: bool = True
    """True if it is the servers' fault where it happened during a fault of theirs."""
    reset: tuple[str, int] | None = None
    """The partition of which the client said that its log is another one than before."""


@dataclass(slots=True)
class Journal:
    """All that a run has seen of messages: what was sent, and what each reader was given.

    Attributes:
        sends: By stream: what was sent, and how it ended.
        readings: By stream and reader: what it was given.
        offsets: By stream, partition and value: the offset of the ack.
        given_up: What readers were given that ended with an error; others took their places.
    """

    sends: dict[str, History] = field(default_factory=dict)
    readings: dict[tuple[str, str], list[Event]] = field(default_factory=dict)
    offsets: dict[tuple[str, int, bytes], int] = field(default_factory=dict)
    given_up: dict[tuple[str, str], list[Event]] = field(default_factory=dict)

    def sent_to(self, stream: str) -> History:
        """Return the record of messages sent to a stream."""
        return self.sends.setdefault(stream, History())

    def delivered(self, reader: str, message: Message, now: float) -> None:
        """Note a delivery."""
        self.readings.setdefault((message.stream, reader), []).append(
            Event(
                EventKind.DELIVERED,
                now,
                reader,
                message.partition,
                message.value,
                None,
                message.offset,
            )
        )

    def give_up(self, stream: str, partition: int, reader: str) -> None:
        """Leave a reader out that ended with an error: nobody can say what it missed."""
        events = self.readings.pop((stream, reader), [])
        self.given_up.setdefault((stream, reader), []).extend(
            event for event in events if event.partition == partition
        )
        if kept := [event for event in events if event.partition != partition]:
            self.readings[stream, reader] = kept

    def finished(self, stream: str, partition: int, reader: str, now: float) -> None:
        """Note that a reader, or a member of a group, has read all that there is."""
        event = Event(EventKind.FINISHED, now, reader, partition)
        self.readings.setdefault((stream, reader), []).append(event)


def value_of(place: Place, number: int, now: float) -> bytes:
    """A value that tells where it was sent to, which one it is, and when it was sent."""
    return f"p:{place}:{number}:{int(now * 1e6)}".encode()


def sent_at(value: bytes) -> float | None:
    """When a value of `value_of` was sent; None for those of others."""
    if not value.startswith(b"p:"):
        return None
    try:
        return int(value.rpartition(b":")[2]) / 1e6
    except ValueError:  # one with a bit that was flipped
        return None
