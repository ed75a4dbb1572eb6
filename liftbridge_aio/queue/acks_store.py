"""Storage of acks: in a stream of the group, or in memory.

The stream of acks has a partition for each partition of the message stream. The last record of a
partition is the current state; older records are never needed. Each write carries the offset that
it must get (optimistic concurrency control), so an expelled member that is still running cannot
overwrite the record of its successor.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable
from contextlib import suppress
from dataclasses import replace
from typing import Final, NamedTuple, Protocol
from urllib.parse import quote

from liftbridge_aio._admin.streams import StreamAdministration
from liftbridge_aio._core.log_position import LogPosition
from liftbridge_aio._publish.retry import RetryingPublisher
from liftbridge_aio._subscribe.committed_state import committed_state
from liftbridge_aio.errors import (
    IncorrectOffset,
    LiftbridgeError,
    NotFound,
    StreamNotFound,
    StreamReset,
)
from liftbridge_aio.groups.fenced_cursors import beginning_cursor
from liftbridge_aio.model import AckPolicy, Message, OutgoingMessage, StreamPartition
from liftbridge_aio.net.network import Network
from liftbridge_aio.options import OWN_STREAM
from liftbridge_aio.retry import Retry
from liftbridge_aio.transactions.core.transaction import AckIntent

from .core.ack_window import Snapshot
from .core.acks_record import AcksRecord
from .errors import QueueTaken


class ReadLast(Protocol):
    """`Client.last`, with `unpause`: a stream of acks from an earlier release may pause itself."""

    def __call__(self, stream: str, *, n: int, partition: int) -> Awaitable[list[Message]]:
        """Return the last messages of a partition."""


_SEGMENT_BYTES: Final = 2**20
_KEPT_MESSAGES: Final = 1000
"""Spare records of a partition, as servers remove whole segments; only the last one is needed."""
_OPTIONS: Final = replace(
    OWN_STREAM,
    optimistic_concurrency_control=True,
    retention_max_messages=_KEPT_MESSAGES,
    segment_max_bytes=_SEGMENT_BYTES,
)
_CLAIMS: Final = 10
"""Attempts to claim a partition while its former owner still writes."""


def acks_stream(group: str, stream: str) -> str:
    """Return the name of the stream that stores the acks of a group."""
    return f"__acks.{quote(group, safe='').replace('.', '%2E')}.{stream}"


async def last_record(
    read_last: ReadLast, name: str, partition: int
) -> tuple[AcksRecord | None, int]:
    """Return the last record of a partition of a stream of acks, and the last offset.

    The record is None if there is none, and the offset -1 if the partition is empty.

    Args:
        read_last: reads the last messages.
        name: the stream of acks.
        partition: which of its partitions.
    """
    messages = await read_last(name, n=1, partition=partition)
    if messages and not messages[0].value:
        messages = await read_last(name, n=_KEPT_MESSAGES, partition=partition)
    # Empty messages are fillers: they make a restarted server show the messages before them.
    records = (AcksRecord.decode(each.value) for each in reversed(messages) if each.value)
    return next(records, None), messages[-1].offset if messages else -1


class Claim(NamedTuple):
    """The stored state of a partition at the moment a member claims it."""

    snapshot: Snapshot
    """The settled messages."""
    in_order: bool = True
    """True if the former owner released the partition; False if it may have crashed."""
    acks: tuple[AckIntent, ...] = ()
    """Acks of transactions that the former owner has left open; the new owner writes them."""


class AcksStore(Protocol):
    """Storage of settled messages; also the `CursorStore` of the queue's consumer group."""

    @property
    def unfinished(self) -> set[StreamPartition]:
        """Partitions whose former owner may have left open transactions."""

    async def fetch(
        self, cursor_id: str, stream: str, partition: int, timeout: float, /
    ) -> int | None:
        """Return the offset before the first unsettled message; None if nothing is stored."""

    async def locate(
        self, cursor_id: str, stream: str, partition: int, timeout: float, /
    ) -> LogPosition:
        """Return the same for the current log of the stream, according to cached metadata.

        Later claims and writes refer to that log.
        """

    async def set(
        self, cursor_id: str, stream: str, partition: int, offset: int, timeout: float, /
    ) -> None:
        """Store the start of the group, unless something is stored."""

    async def prepare(self) -> None:
        """Prepare the storage."""

    async def claim(self, place: StreamPartition, first: int) -> Claim:
        """Take over a partition; it begins at offset `first` if nothing is stored."""

    async def save(
        self,
        place: StreamPartition,
        snapshot: Snapshot,
        acks: tuple[AckIntent, ...] = (),
        *,
        last: bool,
    ) -> None:
        """Store a snapshot, and the acks of open transactions for the next owner."""

    async def unfinished_acks(self) -> tuple[AckIntent, ...]:
        """Return the acks of open transactions in all partitions."""

    async def destroy(self) -> None:
        """Delete all stored acks."""


class MemoryAcks:
    """Keeps acks for as long as the queue is open."""

    def __init__(self, network: Network) -> None:
        self._network = network
        # State
        self.unfinished: set[StreamPartition] = set()
        """Always empty: without stored acks there are no transactions."""
        self._settled: dict[StreamPartition, Snapshot] = {}
        """The last snapshot of each claimed partition."""
        self._created: dict[StreamPartition, int] = {}
        """Creation time of the log that the snapshots refer to, noted at the first `locate`."""

    async def fetch(
        self,
        cursor_id: str,
        stream: str,
        partition: int,
        timeout: float,  # noqa: ARG002 - of the protocol
    ) -> int | None:
        """Implement `AcksStore`."""
        return _position(self._settled.get(StreamPartition(stream, partition)), cursor_id)

    async def locate(
        self, cursor_id: str, stream: str, partition: int, timeout: float
    ) -> LogPosition:
        """Implement `AcksStore`."""
        info = await self._network.metadata.stream(stream, timeout)
        created, place = info.creation_timestamp, StreamPartition(stream, partition)
        snapshot = self._settled.get(place)
        if self._created.setdefault(place, created) != created:
            return LogPosition(cursor_id, None, _last_settled(snapshot), created)
        return LogPosition(cursor_id, _position(snapshot, cursor_id), created=created)

    async def set(
        self,
        cursor_id: str,
        stream: str,
        partition: int,
        offset: int,
        timeout: float,  # noqa: ARG002 - of the protocol
    ) -> None:
        """Implement `AcksStore`."""
        place = StreamPartition(stream, partition)
        self._settled.setdefault(place, _beginning(cursor_id, offset))

    async def prepare(self) -> None:
        """Implement `AcksStore`."""

    async def claim(self, place: StreamPartition, first: int) -> Claim:
        """Implement `AcksStore`."""
        return Claim(self._settled.setdefault(place, Snapshot(first)))

    async def save(
        self,
        place: StreamPartition,
        snapshot: Snapshot,
        acks: tuple[AckIntent, ...] = (),  # noqa: ARG002 - of the protocol
        *,
        last: bool,  # noqa: ARG002 - same
    ) -> None:
        """Implement `AcksStore`."""
        self._settled[place] = snapshot

    async def unfinished_acks(self) -> tuple[AckIntent, ...]:
        """Implement `AcksStore`."""
        return ()

    async def destroy(self) -> None:
        """Implement `AcksStore`."""
        self._settled.clear()


class AcksStream:
    """Keeps acks in a stream: an `AcksStore`.

    Args:
        group: the id of the group.
        stream: the stream of the messages.
        network: the network of the client.
        streams: creates the stream of acks.
        publisher: writes records.
        read_last: reads the last record.
        timeout: seconds for each call.
        begins_anew: True to ignore acks of a log that was longer than the current one: the log
            was replaced, or has lost its end, and all of it is delivered. False: the group raises
            `StreamReset`.
    """

    def __init__(
        self,
        group: str,
        stream: str,
        network: Network,
        streams: StreamAdministration,
        publisher: RetryingPublisher,
        read_last: ReadLast,
        timeout: float,
        *,
        begins_anew: bool = False,
    ) -> None:
        self.name = acks_stream(group, stream)
        self.stream = stream
        self._group = group
        self._network = network
        self._streams = streams
        self._publisher = publisher
        self._read_last = read_last
        self._timeout = timeout
        self._begins_anew = begins_anew
        self._owner = secrets.token_hex(8)
        """Written into each record; recognises a record of this member whose ack was lost."""
        # State
        self.unfinished: set[StreamPartition] = set()
        """Partitions whose last record has open transactions, until they are claimed."""
        self._ends: dict[StreamPartition, int] = {}
        """Offset of the last record that this member has written; set by `claim` and `save`."""
        self._turns: dict[StreamPartition, asyncio.Lock] = {}
        """One writer per partition, as the next write needs the offset of the one before."""
        self._created: dict[int, int] = {}
        """Creation time of the message stream at the last `locate`, by partition."""

    async def prepare(self) -> None:
        """Create the stream, unless it exists."""
        found = await self._network.metadata.stream(self.stream, self._timeout)
        partitions = found.partitions
        await self._streams.create(
            self.name,
            self.name,
            partitions=len(partitions),
            replication_factor=max(1, min(len(each.replicas) for each in partitions.values())),
            group=None,
            options=_OPTIONS,
            exist_ok=True,
            timeout=self._timeout,
        )
        stored = len((await self._network.metadata.stream(self.name, self._timeout)).partitions)
        if stored < len(partitions):
            raise StreamReset(
                f"the group {self._group!r} has acks of {stored} partitions, but the stream has"
                f" {len(partitions)}: it was recreated; unsubscribe() deletes the acks",
                stream=self.stream,
            )

    async def fetch(
        self,
        cursor_id: str,
        stream: str,  # noqa: ARG002 - of the protocol
        partition: int,
        timeout: float,  # noqa: ARG002 - same
    ) -> int | None:
        """Implement `AcksStore`; also None if the record belongs to a former log."""
        record, _ = await self._tail(partition)
        if record is not None and record.acks:
            self.unfinished.add(StreamPartition(self.stream, partition))
        is_known = record is not None and self._is_of_log(record, partition)
        return _position(record.snapshot if record and is_known else None, cursor_id)

    async def locate(
        self, cursor_id: str, stream: str, partition: int, timeout: float
    ) -> LogPosition:
        """Implement `AcksStore`.

        The creation time in the record decides whether its acks apply to the current log:

        | record | creation time | effect |
        |---|---|---|
        | absent | | the queue begins at its `start` |
        | present | absent (earlier release) | the queue continues, and adds the time |
        | present | same | the queue continues |
        | present | other, nothing settled | the queue begins at its `start` |
        | present | other | the log was replaced: `on_reset` decides |

        Acks and creation time are one message, so a crash cannot separate them.
        """
        info = await self._network.metadata.stream(stream, timeout)
        record, _ = await self._tail(partition)
        self._created[partition] = created = info.creation_timestamp
        if record is not None and record.acks:
            self.unfinished.add(StreamPartition(stream, partition))
        if record is None or self._is_of_log(record, partition):
            snapshot = None if record is None else record.snapshot
            return LogPosition(cursor_id, _position(snapshot, cursor_id), created=created)
        return LogPosition(cursor_id, None, _last_settled(record.snapshot), created)

    def _is_of_log(self, record: AcksRecord, partition: int) -> bool:
        """Return True if a record belongs to the log of the last `locate`."""
        return 0 in (ends := {record.created, self._created.get(partition, 0)}) or len(ends) == 1

    async def set(
        self,
        cursor_id: str,
        stream: str,  # noqa: ARG002 - of the protocol
        partition: int,
        offset: int,
        timeout: float,  # noqa: ARG002 - same
    ) -> None:
        """Implement `AcksStore`."""
        record, end = await self._tail(partition)
        if record is None or not self._is_of_log(record, partition):
            with suppress(IncorrectOffset):  # another member was faster
                await self._write(partition, _beginning(cursor_id, offset), end + 1, last=True)

    async def claim(self, place: StreamPartition, first: int) -> Claim:
        """Implement `AcksStore`."""
        for _ in range(_CLAIMS):
            record, end = await self._tail(place.partition)
            found = Claim(Snapshot(first))
            self.unfinished.discard(place)
            if record is not None:
                is_known = self._is_of_log(record, place.partition)
                settled = record.snapshot if is_known else Snapshot(first)
                found = Claim(settled, record.last, record.acks)
            with suppress(IncorrectOffset):
                self._ends[place] = await self._write(
                    place.partition, found.snapshot, end + 1, found.acks, last=False
                )
                return found
        raise QueueTaken(
            f"{_CLAIMS} claims failed: other members keep writing its acks",
            stream=place.stream,
            partition=place.partition,
        )

    async def save(
        self,
        place: StreamPartition,
        snapshot: Snapshot,
        acks: tuple[AckIntent, ...] = (),
        *,
        last: bool,
    ) -> None:
        """Implement `AcksStore`."""
        async with self._turns.setdefault(place, asyncio.Lock()):
            for _ in range(2):
                wanted = self._ends[place] + 1
                try:
                    self._ends[place] = await self._write(
                        place.partition, snapshot, wanted, acks, last=last
                    )
                except (IncorrectOffset, StreamNotFound) as error:
                    record, end = await self._tail(place.partition)
                    if record is None or record.owner != self._owner:
                        raise QueueTaken(
                            "another member of the group has claimed the partition",
                            stream=place.stream,
                            partition=place.partition,
                        ) from error
                    self._ends[place] = end  # our write before was stored, and its ack lost
                else:
                    return

    async def unfinished_acks(self) -> tuple[AckIntent, ...]:
        """Implement `AcksStore`."""
        acks: list[AckIntent] = []
        found = await self._network.metadata.fetch([self.name], timeout=self._timeout)
        info = found.streams.get(self.name)
        with suppress(NotFound):
            for partition in () if info is None else info.partitions:
                record, _ = await self._tail(partition)
                if record is not None:
                    acks += record.acks
        return tuple(acks)

    async def destroy(self) -> None:
        """Delete the stream."""
        with suppress(NotFound):
            await self._streams.delete(self.name, self._timeout)

    async def _tail(self, partition: int) -> tuple[AcksRecord | None, int]:
        """Return the last record and the last offset, as `last_record`.

        If a restarted server hides messages, the offset is too low. A write that expects it is
        refused then, so hidden records are never overwritten.
        """
        try:
            await self._committed(partition)
        except StreamNotFound:  # deleted since `prepare`, with all acks in it
            await self.prepare()
            await self._committed(partition)
        record, end = await last_record(self._read_last, self.name, partition)
        if record is not None and self._begins_anew:
            log = await self._network.metadata.partition(self.stream, partition, self._timeout)
            if record.snapshot.next_offset > log.newest_offset + 1:
                return None, end
        return record, end

    async def _committed(self, partition: int) -> None:
        await committed_state(
            lambda: self._network.metadata.partition(self.name, partition, self._timeout),
            lambda offset: self._publish(partition, b"", offset),
        )

    async def _write(
        self,
        partition: int,
        snapshot: Snapshot,
        offset: int,
        acks: tuple[AckIntent, ...] = (),
        *,
        last: bool,
    ) -> int:
        created = self._created.get(partition, 0)
        record = AcksRecord(self._group, self.stream, self._owner, last, snapshot, acks, created)
        return await self._publish(partition, record.encode(), offset)

    async def _publish(self, partition: int, value: bytes, offset: int) -> int:
        message = OutgoingMessage(
            self.name,
            value,
            self._group.encode(),
            partition=partition,
            ack_policy=AckPolicy.ALL,
            expected_offset=offset,
            retry=Retry(),
            timeout=self._timeout,
        )
        ack = await (await self._publisher.submit(message))
        if ack is None:
            raise LiftbridgeError(
                "a record of acks was stored without an ack", stream=self.name, partition=partition
            )
        return ack.offset


def _position(snapshot: Snapshot | None, cursor_id: str) -> int | None:
    """Return the position of a snapshot under one of a group's two cursor ids.

    A cursor is the last finished offset, which cannot express "begins at 0". That is a second
    cursor, see `FencedCursors`.
    """
    if snapshot is None:
        return None
    base = snapshot.base
    if cursor_id.startswith(beginning_cursor("")):
        return None if base else 0
    return base - 1 if base else None


def _last_settled(snapshot: Snapshot | None) -> int | None:
    """Return the offset up to which messages were settled; None if none was."""
    if snapshot is None:
        return None
    some = snapshot.next_offset > len(snapshot.unsettled) or snapshot.settled
    return snapshot.next_offset - 1 if some else None


def _beginning(cursor_id: str, offset: int) -> Snapshot:
    return Snapshot(0 if cursor_id.startswith(beginning_cursor("")) else offset + 1)
