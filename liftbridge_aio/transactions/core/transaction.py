"""Keep what a transaction knows of itself: its producer, its phase, its acks. Pure."""

from __future__ import annotations

import enum
from typing import Final, NamedTuple, TypeAlias

from .sequencer import NO_OFFSET
from .uuid import Clock, Flags, clock_at, pack_uuid
from .visibility import AckEntry

Place: TypeAlias = tuple[str, int]
"""A stream and one of its partitions."""


class Phase(enum.Enum):
    """Phase of a transaction."""

    OPEN = "open"
    """It takes messages."""
    STORING = "being stored"
    """Its messages are stored, and its checkpoint is written; only with a store."""
    COMMITTING = "committing"
    """Its messages are stored, and its checkpoint if there is one, and its acks are written."""
    IN_DOUBT = "in doubt"
    """Its checkpoint may be stored or not, or some of its acks are and others not."""
    COMMITTED = "committed"
    ABORTED = "aborted"


class Step(enum.Enum):
    """Events in the life of a transaction."""

    STORE = enum.auto()
    """Every message is stored, and its checkpoint is about to be written."""
    COMMIT = enum.auto()
    """Its acks are about to be written."""
    SUCCEED = enum.auto()
    """Every ack is stored."""
    REFUSE = enum.auto()
    """The checkpoint, or without a store every ack, is not stored, for sure."""
    FAIL = enum.auto()
    """The checkpoint or an ack may be stored or not."""
    ABORT = enum.auto()


PHASES: Final = {
    (Phase.OPEN, Step.STORE): Phase.STORING,
    (Phase.OPEN, Step.COMMIT): Phase.COMMITTING,
    (Phase.OPEN, Step.ABORT): Phase.ABORTED,
    (Phase.STORING, Step.COMMIT): Phase.COMMITTING,
    (Phase.STORING, Step.REFUSE): Phase.ABORTED,
    (Phase.STORING, Step.FAIL): Phase.IN_DOUBT,
    (Phase.COMMITTING, Step.SUCCEED): Phase.COMMITTED,
    (Phase.COMMITTING, Step.REFUSE): Phase.ABORTED,
    (Phase.COMMITTING, Step.FAIL): Phase.IN_DOUBT,
    (Phase.IN_DOUBT, Step.STORE): Phase.STORING,
    (Phase.IN_DOUBT, Step.COMMIT): Phase.COMMITTING,
    (Phase.ABORTED, Step.ABORT): Phase.ABORTED,
}
"""The phase that follows; what is not here cannot happen."""


class AckIntent(NamedTuple):
    """An ack that is to be written to one partition."""

    stream: str
    partition: int
    entry: AckEntry


class ProducerIdentity:
    """A producer id with its clock, and what it has committed.

    One transaction, or one message outside of any, has it at a time. It is used again only if
    all that was sent under it is known to be stored, or not to be.
    """

    __slots__ = ("_committed", "_start", "clock", "id")

    def __init__(self, producer: bytes, unix_ns: int) -> None:
        """Begin at a time in nanoseconds since 1970."""
        self.id = producer
        self.clock = clock_at(unix_ns)
        """The clock of the newest message or ack."""
        self._start = self.clock
        self._committed: dict[Place, int] = {}

    def update(self, unix_ns: int) -> None:
        """Advance the clock to a time in nanoseconds since 1970."""
        self.clock = max(self.clock, clock_at(unix_ns))

    def next_uuid(self, flags: Flags) -> bytes:
        """Return the UUID of the next message."""
        self.clock = clock = self.clock + Clock.MICROSECOND
        return pack_uuid(self.id, clock, flags)

    def commit(self, begins: dict[Place, int]) -> list[AckIntent]:
        """Return the acks that commit everything up to now.

        Args:
            begins: offset of the first message of the transaction, by partition.
        """
        self.clock = clock = self.clock + Clock.MICROSECOND
        intents = []
        for place, begin in begins.items():
            entry = AckEntry(self.id, clock, begin, self._committed.get(place, self._start))
            intents.append(AckIntent(*place, entry))
            self._committed[place] = clock
        return intents

    def roll_back(self, begins: dict[Place, int | None]) -> list[AckIntent]:
        """Return the acks that roll a transaction back for good; the identity ends with that.

        Args:
            begins: as for `commit`; None where no message is known to be stored.
        """
        intents = []
        for place, begin in begins.items():
            clock = self._committed.get(place, self._start)
            known = NO_OFFSET if begin is None else begin
            entry = AckEntry(self.id, clock, known, clock, final=True)
            intents.append(AckIntent(*place, entry))
        return intents
