"""What a member reads: one reading for each partition at a time, taken from as one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

from liftbridge_aio.errors import (
    ClientClosed,
    ConnectionFailed,
    EncryptionFailed,
    LiftbridgeError,
    PartitionNotFound,
    PartitionPaused,
    PartitionTaken,
    PermissionDenied,
    RequestTimeout,
    ServerError,
    StreamDeleted,
    StreamNotFound,
    SubscriptionLost,
    TLSFailed,
    UnsupportedByServer,
)
from liftbridge_aio.merge import Merge
from liftbridge_aio.model import Message, StartAt, StartPosition
from liftbridge_aio.position import Position
from liftbridge_aio.reading import Reading
from liftbridge_aio.reading_plan import ConsumerIdentity, ReadingPlan

from .assignment import StreamPartition

_PASSING = (
    ClientClosed,
    ConnectionFailed,
    PartitionNotFound,
    PartitionPaused,
    PartitionTaken,
    RequestTimeout,
    ServerError,
    StreamDeleted,  # the group takes it from its members
    StreamNotFound,
    SubscriptionLost,
)
_LASTING = (EncryptionFailed, PermissionDenied, TLSFailed, UnsupportedByServer)
"""What another try may mend, and what of that it does not: that is raised to the reader."""


@dataclass(slots=True, eq=False)
class _Slot:
    """A partition: where it is read next, and what has been done with it."""

    place: StreamPartition
    start: StartAt
    reading: Reading | None = None
    done: int | None = None
    """The last offset that is finished, by all that came before `parting` and `reading`."""
    parting: list[Reading] = field(default_factory=list)
    """Readings that are over and of which the reader may have a message in hand."""


class GroupReading:
    """The readings of one member, and how far its reader is done.

    Args:
        make: makes a reading of a plan.
        plan: makes the plan to read a partition from a place, in the name of a member.
        ended: told of a reading that ended by itself, and why (None: in an orderly way); another
            one is to be opened.
        delivered: told of each message handed out; None where nobody wants to know.
    """

    def __init__(
        self,
        make: Callable[[ReadingPlan], Reading],
        plan: Callable[[StreamPartition, StartAt, ConsumerIdentity], ReadingPlan],
        ended: Callable[[StreamPartition, LiftbridgeError | None], None],
        delivered: Callable[[Message], None] | None,
    ) -> None:
        self.merge = Merge(self._drained, delivered)
        self.paused: set[StreamPartition] = set()
        self.deleted: set[str] = set()
        """Streams that were deleted while they were read: the group has them no more."""
        self._make = make
        self._plan = plan
        self._ended = ended
        self._slots: dict[StreamPartition, _Slot] = {}
        self._lost: set[StreamPartition] = set()
        self._unsettled: set[Reading] = set()
        self._loop = asyncio.get_running_loop()

    # Taking up and giving up

    def adopt(self, place: StreamPartition, start: StartAt) -> None:
        """Take a partition up; `open` reads it."""
        self._slots[place] = _Slot(place, start)
        self._lost.discard(place)
        self.deleted.discard(place.stream)

    def open(
        self,
        place: StreamPartition,
        identity: ConsumerIdentity,
        *,
        settled: bool = True,
        broken: LiftbridgeError | None = None,
    ) -> Reading:
        """Read on, where it was left or where it is to begin.

        Args:
            place: the partition.
            identity: in whose name.
            settled: False hands out nothing before `settle`.
            broken: why it cannot be read; nothing is sent, and the reader gets that.

        Raises:
            ClientClosed: the client was closed.
        """
        slot = self._slots[place]
        if slot.reading is not None:
            text = f"{place} is being read already"
            raise AssertionError(text)
        reading = self._make(self._plan(place, slot.start, identity))
        reading.on_end = partial(self._end_soon, slot, reading)
        slot.reading = reading
        if broken is None:
            reading.begin()
        else:
            reading.failed(broken, None)
        self.merge.add(reading)
        if not settled:
            self._unsettled.add(reading)
        if place in self.paused or not settled:
            self.merge.hold([reading])
        return reading

    def settle(self, place: StreamPartition, reading: Reading, start: int | None) -> bool:
        """Begin to hand out what was opened unsettled.

        Args:
            place: the partition.
            reading: what `open` gave.
            start: leave out what lies before this offset.

        Returns:
            Whether that is still what is read.
        """
        self._unsettled.discard(reading)
        slot = self._slots.get(place)
        if slot is None or slot.reading is not reading:
            return False
        begins = slot.start.value if slot.start.position is StartPosition.OFFSET else -1
        if start is not None and start > begins and reading.position.last is None:
            # Nothing was looked at yet, so all that waits is judged by the new start.
            reading.intake.position = Position(start)
            slot.start = StartAt.offset(start)
        if place not in self.paused:
            self.merge.release([reading])
        return True

    def stop(self, places: Iterable[StreamPartition]) -> None:
        """Hand out no more of these, from this moment on; what was handed out can be finished."""
        for place in places:
            self._part(self._slots[place])

    def lose(self) -> None:
        """Hand out no more of anything; nor can it be finished, others may have it."""
        self.stop(self._slots)
        self._lost.update(self._slots)

    def give_up(self, places: Iterable[StreamPartition]) -> None:
        """Forget partitions."""
        for place in places:
            slot = self._slots.pop(place, None)
            self._lost.discard(place)
            self.paused.discard(place)
            if slot is not None:
                self._part(slot)

    def close(self) -> None:
        """Give everything up."""
        self.give_up(list(self._slots))

    # Where things stand

    def finished(self, place: StreamPartition) -> int | None:
        """The last offset of a partition with which the reader is done; None before there is one.

        It does not step back, wherever the reader goes.
        """
        slot = self._slots.get(place)
        if slot is None:
            return None
        self._settle_parting(slot)
        if slot.reading is not None:
            self._note(slot, self.merge.finished(slot.reading))
        return slot.done

    def finish(self, place: StreamPartition, offset: int) -> bool:
        """Take note that the reader is done up to an offset; False where that is not ours."""
        slot = self._slots.get(place)
        if slot is None or place in self._lost:
            return False
        self._note(slot, offset)
        return True

    def position(self, place: StreamPartition) -> int | None:
        """The offset that is handed out next, or the lowest that can be; None if unknown."""
        slot = self._slots.get(place)
        if slot is None:
            return None
        start = _next(slot)
        if start.position is StartPosition.OFFSET:
            return start.value
        return None if slot.reading is None else slot.reading.intake.next_offset

    def places(self) -> list[StreamPartition]:
        """The partitions that are taken up."""
        return list(self._slots)

    # What the user asks for

    def pause(self, places: Iterable[StreamPartition]) -> None:
        """Hand out nothing of these until they are resumed; the server stops when they are full."""
        for place in places:
            self.paused.add(place)
            reading = self._slots[place].reading
            if reading is not None:
                self.merge.hold([reading])

    def resume(self, places: Iterable[StreamPartition]) -> None:
        """Hand out these again."""
        for place in places:
            self.paused.discard(place)
            slot = self._slots.get(place)
            reading = None if slot is None else slot.reading
            if reading is not None and reading not in self._unsettled:
                self.merge.release([reading])

    def seek(self, place: StreamPartition, start: StartAt) -> None:
        """Go on elsewhere, once the partition is opened again."""
        slot = self._slots[place]
        self._part(slot)
        slot.start = start

    def start_over(self, place: StreamPartition) -> None:
        """Forget how far the reader was: that was in another log."""
        slot = self._slots[place]
        slot.done = None
        slot.parting.clear()

    # Ends

    def _note(self, slot: _Slot, offset: int | None) -> None:
        if offset is not None and (slot.done is None or offset > slot.done):
            slot.done = offset

    def _part(self, slot: _Slot) -> None:
        """End the reading of a partition; what the reader has in hand can still be finished."""
        slot.start = _next(slot)
        reading, slot.reading = slot.reading, None
        if reading is None:
            return
        self._unsettled.discard(reading)
        self.merge.remove(reading)
        reading.drop()
        slot.parting.append(reading)
        self._settle_parting(slot)

    def _settle_parting(self, slot: _Slot) -> None:
        """Forget readings that are over, as soon as nothing of theirs is in hand."""
        for reading in list(slot.parting):
            finished = self.merge.finished(reading)
            self._note(slot, finished)
            if finished == reading.intake.handed_over:
                slot.parting.remove(reading)

    def _end_soon(self, slot: _Slot, reading: Reading, error: LiftbridgeError | None) -> None:
        if isinstance(error, StreamDeleted):
            self.deleted.add(slot.place.stream)
        elif isinstance(error, PartitionTaken):
            self._loop.call_soon(self._over, slot, reading, error)

    def _over(self, slot: _Slot, reading: Reading, error: PartitionTaken) -> None:
        """A reading gave way to another member's: what waits here is that one's to read."""
        if slot.reading is reading:
            self._part(slot)
            self._ended(slot.place, error)

    def _drained(self, reading: Reading) -> None:
        """A reading has ended, and all that came before was handed out."""
        place = StreamPartition(reading.plan.stream, reading.plan.partition)
        slot = self._slots.get(place)
        if slot is None or slot.reading is not reading:
            return
        error = reading.feed.take_error()
        slot.start, slot.reading = _next(slot), None
        self._note(slot, reading.intake.handed_over)  # who asks for more is done with all
        self._ended(place, error)
        if error is not None and (isinstance(error, _LASTING) or not isinstance(error, _PASSING)):
            raise error


def _next(slot: _Slot) -> StartAt:
    """Where a partition is to be read on; one that was new or latest keeps the place it had."""
    reading, start = slot.reading, slot.start
    if reading is None:
        return start
    last = reading.intake.handed_over
    if last is not None:
        return StartAt.offset(last + 1)
    if start.position is not StartPosition.OFFSET and reading.start_offset is not None:
        return StartAt.offset(reading.start_offset)
    return start
