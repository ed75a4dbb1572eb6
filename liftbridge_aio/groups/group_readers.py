"""The partition readers of a member, with delivered and finished offsets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

import anyio

from liftbridge_aio._subscribe.core.plan import ConsumerIdentity, ReadingPlan
from liftbridge_aio._subscribe.core.position import Position
from liftbridge_aio._subscribe.merge import Merge
from liftbridge_aio._subscribe.partition_reader import PartitionReader
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
from liftbridge_aio.model import Message, StartAt, StartPosition, StreamPartition

_PASSING = (
    ClientClosed,
    ConnectionFailed,
    PartitionNotFound,
    PartitionPaused,
    PartitionTaken,
    RequestTimeout,
    ServerError,
    StreamDeleted,  # the group removes it from its members
    StreamNotFound,
    SubscriptionLost,
)
_LASTING = (EncryptionFailed, PermissionDenied, TLSFailed, UnsupportedByServer)
"""Errors after which the partition is reopened.

Those that a retry does not resolve are also raised.
"""


@dataclass(slots=True, eq=False)
class _Slot:
    """The start and finished offset of a partition, and its readers."""

    partition: StreamPartition
    start: StartAt
    """The start of the next reader, unless `reader` has a later position."""
    reader: PartitionReader | None = None
    finished: int | None = None
    """The last finished offset before those of `leaving` and `reader`."""
    leaving: list[PartitionReader] = field(default_factory=list)
    """Dropped readers of which a message may still be in processing."""
    continued: PartitionReader | None = None
    """The dropped reader after whose last message `start` is; None after a seek."""


class GroupReaders:
    """The merged readers of the partitions that a member holds, and their finished offsets.

    Either one task takes from `merge`, or several take turns: once the turn of a partition has
    begun, no other task receives its messages before `end_turn`, even if its reader is replaced.

    Args:
        make: creates a reader for a plan.
        plan: creates the plan to read a partition from a start as a member.
        ended: called when a reader has ended, with the error, or None for an orderly end, so that
            the partition is opened again.
        delivered: called with each delivered message; None for no callback.
    """

    def __init__(
        self,
        make: Callable[[ReadingPlan], PartitionReader],
        plan: Callable[[StreamPartition, StartAt, ConsumerIdentity], ReadingPlan],
        ended: Callable[[StreamPartition, LiftbridgeError | None], None],
        delivered: Callable[[Message], None] | None,
    ) -> None:
        self.merge = Merge(self._drained, delivered)
        self.delivered = delivered
        self.paused: set[StreamPartition] = set()
        self.deleted: set[str] = set()
        """Streams that were deleted while they were read and are no longer read."""
        self._make = make
        self._plan = plan
        self._ended = ended
        self._slots: dict[StreamPartition, _Slot] = {}
        self._lost: set[StreamPartition] = set()
        self._unsettled: set[PartitionReader] = set()
        self._turns: dict[StreamPartition, asyncio.Event] = {}
        """Partitions whose turn has begun; the event is set when it ends."""
        self._loop = asyncio.get_running_loop()

    # Adding and removing partitions

    def adopt(self, partition: StreamPartition, start: StartAt) -> None:
        """Add a partition without reading it; see `open`."""
        self._slots[partition] = _Slot(partition, start)
        self._lost.discard(partition)
        self.deleted.discard(partition.stream)

    def open(
        self,
        partition: StreamPartition,
        identity: ConsumerIdentity,
        *,
        settled: bool = True,
        broken: LiftbridgeError | None = None,
    ) -> PartitionReader:
        """Start a reader at the last position of a partition, or at its start.

        Args:
            partition: the partition.
            identity: the member that reads.
            settled: False to deliver nothing before `settle`.
            broken: an error to raise to the user instead of sending a request.

        Raises:
            ClientClosed: the client was closed.
        """
        slot = self._slots[partition]
        if slot.reader is not None:
            raise AssertionError(f"{partition} is being read already")
        reader = self._make(self._plan(partition, slot.start, identity))
        reader.on_end = partial(self._end_soon, slot, reader)
        slot.reader = reader
        if broken is None:
            reader.begin()
        else:
            reader.failed(broken, None)
        self.merge.add(reader)
        if not settled:
            self._unsettled.add(reader)
        self._hold_or_release(partition)
        return reader

    def settle(
        self, partition: StreamPartition, reader: PartitionReader, start: int | None
    ) -> bool:
        """Start delivery from a reader that was opened unsettled.

        Args:
            partition: the partition.
            reader: the reader returned by `open`.
            start: discard messages before this offset.

        Returns:
            True if the partition is still read by this reader.
        """
        self._unsettled.discard(reader)
        slot = self._slots.get(partition)
        if slot is None or slot.reader is not reader:
            return False
        begins = slot.start.value if slot.start.position is StartPosition.OFFSET else -1
        if start is not None and start > begins and reader.position.last is None:
            # No position was checked yet, so buffered messages are checked against the new start.
            reader.decoder.position = Position(start)
            slot.start = StartAt.offset(start)
        self._hold_or_release(partition)
        return True

    def stop(self, partitions: Iterable[StreamPartition]) -> None:
        """Stop delivery from partitions; delivered messages can still be finished."""
        for partition in partitions:
            self._drop_reader(self._slots[partition])

    def lose(self) -> None:
        """Stop delivery from partitions and finish nothing more: other members may own them."""
        self.stop(self._slots)
        self._lost.update(self._slots)

    def give_up(self, partitions: Iterable[StreamPartition]) -> None:
        """Remove partitions."""
        for partition in partitions:
            slot = self._slots.pop(partition, None)
            self._lost.discard(partition)
            self.paused.discard(partition)
            if slot is not None:
                self._drop_reader(slot)

    def close(self) -> None:
        """Remove all partitions."""
        self.give_up(list(self._slots))

    # Positions

    def finished(self, partition: StreamPartition) -> int | None:
        """Return the last finished offset of a partition; None if there is none.

        It never decreases, even after a seek.
        """
        slot = self._slots.get(partition)
        return None if slot is None else self._finished(slot)

    def _finished(self, slot: _Slot) -> int | None:
        self._settle_leaving(slot)
        if slot.reader is not None:
            _note_finished(slot, self.merge.finished(slot.reader))
        return slot.finished

    async def finished_within(self, partition: StreamPartition, timeout: float) -> int | None:
        """Return the last finished offset once the turn of the partition has ended.

        At most `timeout` seconds later in any case, and even if the partition is released
        meanwhile. Cancelling abandons the wait.
        """
        slot = self._slots.get(partition)
        if slot is None:
            return None
        with anyio.move_on_after(timeout):
            await self.wait_for_turns(frozenset({partition}))
        return self._finished(slot)

    def finish(self, partition: StreamPartition, offset: int) -> bool:
        """Mark all offsets up to one as finished; return False if the partition is not held."""
        slot = self._slots.get(partition)
        if slot is None or partition in self._lost:
            return False
        _note_finished(slot, offset)
        return True

    def position(self, partition: StreamPartition) -> int | None:
        """Return the offset to deliver next, or a lower bound of it; None if unknown."""
        slot = self._slots.get(partition)
        if slot is None:
            return None
        start = _next(slot)
        if start.position is StartPosition.OFFSET:
            return start.value
        return None if slot.reader is None else slot.reader.decoder.next_offset

    def received(self, partition: StreamPartition) -> int | None:
        """Return the last offset that the current reader received; None before the first."""
        slot = self._slots.get(partition)
        return None if slot is None or slot.reader is None else slot.reader.decoder.last_offset

    def is_connected(self, partition: StreamPartition) -> bool:
        """Return True if a server has accepted the current subscription."""
        slot = self._slots.get(partition)
        reader = None if slot is None else slot.reader
        return reader is not None and reader.address is not None

    def partitions(self) -> list[StreamPartition]:
        """Return all partitions."""
        return list(self._slots)

    # Turns

    def take_turn(self) -> PartitionReader | None:
        """Begin the turn of the next reader with messages; None if none has any.

        Until `end_turn` no other task receives messages of its partition.

        Raises:
            LiftbridgeError: a partition cannot be read.
        """
        reader = self.merge.first_in_line()
        if reader is not None:
            self.merge.hold([reader])
            self._turns[_partition_of(reader)] = asyncio.Event()
        return reader

    def end_turn(self, reader: PartitionReader) -> None:
        """End a turn; the messages delivered in it are finished."""
        partition = _partition_of(reader)
        self.merge.put_down(reader)
        self._turns.pop(partition).set()
        self._hold_or_release(partition)

    def put_back(self, reader: PartitionReader, message: Message) -> bool:
        """Return the last message of a turn to its reader, as not delivered.

        Returns:
            True if the partition must be opened again, because its reader was replaced.
        """
        partition = _partition_of(reader)
        slot = self._slots.get(partition)
        if slot is None or not (slot.reader is reader or reader in slot.leaving):
            return False
        if slot.reader is reader:
            reader.decoder.put_back(message)
            return False
        _note_finished(slot, self.merge.finished(reader))
        slot.leaving.remove(reader)
        if slot.continued is not reader:
            return False
        self._drop_reader(slot)
        before = reader.decoder.finished
        again = message.offset if before is None else before + 1
        slot.start, slot.continued = StartAt.offset(again), None
        return partition not in self._lost

    async def wait_for_turns(self, partitions: frozenset[StreamPartition]) -> None:
        """Wait until the turns of these partitions have ended. Cancelling abandons the wait."""
        for ended in [event for each, event in self._turns.items() if each in partitions]:
            await ended.wait()

    # Pausing and seeking

    def pause(self, partitions: Iterable[StreamPartition]) -> None:
        """Pause delivery from partitions; back-pressure stops the server when buffers are full."""
        for partition in partitions:
            self.paused.add(partition)
            self._hold_or_release(partition)

    def resume(self, partitions: Iterable[StreamPartition]) -> None:
        """Resume delivery from partitions."""
        for partition in partitions:
            self.paused.discard(partition)
            self._hold_or_release(partition)

    def seek(self, partition: StreamPartition, start: StartAt) -> None:
        """Set the start of a partition for when it is opened again."""
        slot = self._slots[partition]
        self._drop_reader(slot)
        slot.start, slot.continued = start, None

    def start_over(self, partition: StreamPartition) -> None:
        """Reset the finished offset of a partition whose log was replaced."""
        slot = self._slots[partition]
        slot.finished = None
        slot.leaving.clear()

    def _hold_or_release(self, partition: StreamPartition) -> None:
        slot = self._slots.get(partition)
        reader = None if slot is None else slot.reader
        if reader is None:
            return
        if partition in self.paused or partition in self._turns or reader in self._unsettled:
            self.merge.hold([reader])
        else:
            self.merge.release([reader])

    # End of readers

    def _drop_reader(self, slot: _Slot) -> None:
        """Close the reader of a partition; its last delivered message can still be finished."""
        slot.start = _next(slot)
        reader, slot.reader = slot.reader, None
        if reader is None:
            return
        if reader.decoder.last_delivered is not None or slot.continued is None:
            slot.continued = reader
        self._unsettled.discard(reader)
        self.merge.remove(reader)
        reader.drop()
        slot.leaving.append(reader)
        self._settle_leaving(slot)

    def _settle_leaving(self, slot: _Slot) -> None:
        """Forget dropped readers once all their delivered messages are finished."""
        for reader in list(slot.leaving):
            finished = self.merge.finished(reader)
            _note_finished(slot, finished)
            if finished == reader.decoder.last_delivered:
                slot.leaving.remove(reader)

    def _end_soon(
        self, slot: _Slot, reader: PartitionReader, error: LiftbridgeError | None
    ) -> None:
        if isinstance(error, StreamDeleted):
            self.deleted.add(slot.partition.stream)
        elif isinstance(error, PartitionTaken):
            self._loop.call_soon(self._taken, slot, reader, error)

    def _taken(self, slot: _Slot, reader: PartitionReader, error: PartitionTaken) -> None:
        """Discard buffered messages: the member that took the partition reads them."""
        if slot.reader is reader:
            self._drop_reader(slot)
            self._ended(slot.partition, error)

    def _drained(self, reader: PartitionReader) -> None:
        """Remove a reader that has ended and delivered all its messages."""
        partition = _partition_of(reader)
        slot = self._slots.get(partition)
        if slot is None or slot.reader is not reader:
            return
        error = reader.buffer.take_error()
        slot.start, slot.reader = _next(slot), None
        # A request for more finishes all delivered messages.
        _note_finished(slot, reader.decoder.last_delivered)
        self._ended(partition, error)
        if error is not None and (isinstance(error, _LASTING) or not isinstance(error, _PASSING)):
            raise error


def _partition_of(reader: PartitionReader) -> StreamPartition:
    return StreamPartition(reader.plan.stream, reader.plan.partition)


def _note_finished(slot: _Slot, offset: int | None) -> None:
    if offset is not None and (slot.finished is None or offset > slot.finished):
        slot.finished = offset


def _next(slot: _Slot) -> StartAt:
    """Return the next start; a start of "new" or "latest" keeps the offset it resolved to."""
    reader, start = slot.reader, slot.start
    if reader is None:
        return start
    last = reader.decoder.last_delivered
    if last is not None:
        return StartAt.offset(last + 1)
    if start.position is not StartPosition.OFFSET and reader.start_offset is not None:
        return StartAt.offset(reader.start_offset)
    return start
