"""Stores the acks of a queue: in a stream of its own, or in memory only.

The stream has as many partitions as the stream of the messages, and its last message of each says
what is settled of that partition. Writes carry the offset that they must get, so a member that was
taken for dead cannot write over what its successor has written.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
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

ReadLast = Callable[[str, int, int], Awaitable[list[Message]]]
"""`Client.last`, with `resume`: a stream of an earlier release may pause itself."""

_SEGMENT_BYTES: Final = 2**20
_KEPT_MESSAGES: Final = 1000
"""Only the last record of a partition is ever needed."""
_OPTIONS: Final = replace(
    OWN_STREAM,
    optimistic_concurrency_control=True,
    retention_max_messages=_KEPT_MESSAGES,
    segment_max_bytes=_SEGMENT_BYTES,
)
_CLAIMS: Final = 10
"""Attempts to claim a partition while its former owner writes too."""


def acks_stream(group: str, stream: str) -> str:
    """Return the name of the stream that stores the acks of a group."""
    return f"__acks.{quote(group, safe='').replace('.', '%2E')}.{stream}"


async def last_record(
    read_last: ReadLast, name: str, partition: int
) -> tuple[AcksRecord | None, int]:
    """Return the last record of a partition of a stream of acks, and the last offset.

    None if there is no record, -1 if there is no message. Cancelling abandons the reading.

    Args:
        read_last: reads the last messages.
        name: the stream of acks.
        partition: which of its partitions.

    Raises:
        MalformedData: what is stored is no record, or of a newer format.
        LiftbridgeError: it could not be read.
    """
    messages = await read_last(name, 1, partition)
    if messages and not messages[0].value:
        messages = await read_last(name, _KEPT_MESSAGES, partition)
    # What has no value was stored so that the messages before it can be read.
    records = (AcksRecord.decode(each.value) for each in reversed(messages) if each.value)
    return next(records, None), messages[-1].offset if messages else -1


class Claim(NamedTuple):
    """The state of a partition that a member has claimed, as it finds it."""

    snapshot: Snapshot
    """The settled messages."""
    in_order: bool = True
    """True if the former owner released the partition in order."""
    acks: tuple[AckIntent, ...] = ()
    """Acks of transactions that the former owner may not have written."""


class AcksStore(Protocol):
    """Stores what is settled. It is the `CursorStore` of the group of the queue, too."""

    @property
    def unfinished(self) -> set[StreamPartition]:
        """Partitions whose former owner may have left transactions that are not over."""

    async def fetch(
        self, cursor_id: str, stream: str, partition: int, timeout: float, /
    ) -> int | None:
        """Return the last offset below which all is settled; None if nothing is stored."""

    async def locate(
        self, cursor_id: str, stream: str, partition: int, timeout: float, /
    ) -> LogPosition:
        """Return the same, for the log that the stream has by the metadata that is known.

        That log is claimed afterwards.
        """

    async def set(
        self, cursor_id: str, stream: str, partition: int, offset: int, timeout: float, /
    ) -> None:
        """Store where the group begins, unless something is stored."""

    async def prepare(self) -> None:
        """Make ready what is needed to store acks."""

    async def claim(self, place: StreamPartition, first: int) -> Claim:
        """Take over a partition, of which `first` is the first message if nothing is stored."""

    async def save(
        self,
        place: StreamPartition,
        snapshot: Snapshot,
        acks: tuple[AckIntent, ...] = (),
        *,
        last: bool,
    ) -> None:
        """Store what is settled, and the acks that the next owner must write."""

    async def unfinished_acks(self) -> tuple[AckIntent, ...]:
        """Return the acks that the next owners of all partitions must write."""

    async def destroy(self) -> None:
        """Forget everything."""


class MemoryAcks:
    """Keeps acks for as long as the queue is open."""

    def __init__(self, network: Network) -> None:
        self.unfinished: set[StreamPartition] = set()
        self._network = network
        self._settled: dict[StreamPartition, Snapshot] = {}
        self._created: dict[StreamPartition, int] = {}
        """When the stream of these partitions was created."""

    async def fetch(
        self,
        cursor_id: str,
        stream: str,
        partition: int,
        timeout: float,  # noqa: ARG002 - of the protocol
    ) -> int | None:
        """See `AcksStore`."""
        return _position(self._settled.get(StreamPartition(stream, partition)), cursor_id)

    async def locate(
        self, cursor_id: str, stream: str, partition: int, timeout: float
    ) -> LogPosition:
        """See `AcksStore`."""
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
        """See `AcksStore`."""
        place = StreamPartition(stream, partition)
        self._settled.setdefault(place, _beginning(cursor_id, offset))

    async def prepare(self) -> None:
        """See `AcksStore`."""

    async def claim(self, place: StreamPartition, first: int) -> Claim:
        """See `AcksStore`."""
        return Claim(self._settled.setdefault(place, Snapshot(first)))

    async def save(
        self,
        place: StreamPartition,
        snapshot: Snapshot,
        acks: tuple[AckIntent, ...] = (),  # noqa: ARG002 - of the protocol
        *,
        last: bool,  # noqa: ARG002 - same
    ) -> None:
        """See `AcksStore`."""
        self._settled[place] = snapshot

    async def unfinished_acks(self) -> tuple[AckIntent, ...]:
        """See `AcksStore`."""
        return ()

    async def destroy(self) -> None:
        """See `AcksStore`."""
        self._settled.clear()


class AcksStream:
    """Keeps acks in a stream; see `AcksStore`.

    Args:
        group: the id of the group.
        stream: the stream of the messages.
        network: the network of the client.
        streams: creates the stream.
        publisher: writes to it.
        read_last: reads its last message.
        timeout: seconds for each call.
        begins_anew: True to forget what was settled in a log that is longer than the one of now,
            so another one, or one that has lost its end: all of it is delivered. Without it the
            group raises `StreamReset`.
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
        self.unfinished: set[StreamPartition] = set()
        self._group = group
        self.stream = stream
        self._network = network
        self._streams = streams
        self._publisher = publisher
        self._read_last = read_last
        self._timeout = timeout
        self._begins_anew = begins_anew
        self._owner = secrets.token_hex(8)
        self._ends: dict[StreamPartition, int] = {}
        """The offsets of the records that this member has written last."""
        self._turns: dict[StreamPartition, asyncio.Lock] = {}
        self._created: dict[int, int] = {}
        """By partition: the creation time of the stream, as it was when its log was looked up."""

    async def prepare(self) -> None:
        """Create the stream, unless it exists. Cancelling may leave it created.

        Raises:
            StreamReset: it has fewer partitions than the stream of the messages.
            LiftbridgeError: it could not be created.
        """
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
                f"the group {self._group!r} has acks of {stored} partitions, and the stream has"
                f" {len(partitions)}: it was created again; unsubscribe() forgets the acks",
                stream=self.stream,
            )

    async def fetch(
        self,
        cursor_id: str,
        stream: str,  # noqa: ARG002 - of the protocol
        partition: int,
        timeout: float,  # noqa: ARG002 - same
    ) -> int | None:
        """See `AcksStore`; None, too, if it was settled in a former log. Cancelling abandons it."""
        record, _ = await self._tail(partition)
        if record is not None and record.acks:
            self.unfinished.add(StreamPartition(self.stream, partition))
        is_known = record is not None and self._is_of_log(record, partition)
        return _position(record.snapshot if record and is_known else None, cursor_id)

    async def locate(
        self, cursor_id: str, stream: str, partition: int, timeout: float
    ) -> LogPosition:
        """See `AcksStore`. Cancelling abandons the call.

        What may be done with the acks of a log, by the record of its partition:

        | record | created | |
        |---|---|---|
        | absent | | the queue begins at its `start` |
        | present | absent | an earlier version wrote it: the queue goes on, and notes the time |
        | present | same | the queue goes on |
        | present | other, nothing settled | the queue begins at its `start` |
        | present | other | the log was replaced: its acks mean nothing in this one |

        A record is one message, so a crash leaves the acks and their log as they were, or both new.
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
        """Return True if the acks are those of the log that was looked up."""
        return 0 in (ends := {record.created, self._created.get(partition, 0)}) or len(ends) == 1

    async def set(
        self,
        cursor_id: str,
        stream: str,  # noqa: ARG002 - of the protocol
        partition: int,
        offset: int,
        timeout: float,  # noqa: ARG002 - same
    ) -> None:
        """See `AcksStore`. Cancelling may leave it stored."""
        record, end = await self._tail(partition)
        if record is None or not self._is_of_log(record, partition):
            with suppress(IncorrectOffset):  # another member was faster
                await self._write(partition, _beginning(cursor_id, offset), end + 1, last=True)

    async def claim(self, place: StreamPartition, first: int) -> Claim:
        """See `AcksStore`. Cancelling may leave the partition claimed.

        Raises:
            LiftbridgeError: it could not be claimed.
        """
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
            "other members write its acks all the time",
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
        """See `AcksStore`. Cancelling may leave it stored.

        Raises:
            QueueTaken: another member has claimed the partition.
            LiftbridgeError: it could not be stored.
        """
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
                            "another member of the group has taken the partition",
                            stream=place.stream,
                            partition=place.partition,
                        ) from error
                    self._ends[place] = end  # the ack of a former write was lost
                else:
                    return

    async def unfinished_acks(self) -> tuple[AckIntent, ...]:
        """See `AcksStore`. Cancelling abandons the reading.

        Raises:
            LiftbridgeError: a partition could not be read.
        """
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
        """Delete the stream. Cancelling may leave it deleted.

        Raises:
            LiftbridgeError: it could not be deleted.
        """
        with suppress(NotFound):
            await self._streams.delete(self.name, self._timeout)

    async def _tail(self, partition: int) -> tuple[AcksRecord | None, int]:
        """Return the last record, None if there is none, and the last offset, -1 if there is none.

        The offset is that of what was read: if a restarted server hides messages, it is too low, so
        that nothing can be written as if they were not there.
        """
        try:
            await self._committed(partition)
        except StreamNotFound:  # deleted since it was prepared, and with it what was settled
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
                "acks were stored without an ack", stream=self.name, partition=partition
            )
        return ack.offset


def _position(snapshot: Snapshot | None, cursor_id: str) -> int | None:
    """Return what a group finds under one of its two cursor ids; see `FencedCursors`."""
    if snapshot is None:
        return None
    base = snapshot.base
    if cursor_id.startswith(beginning_cursor("")):
        return None if base else 0
    return base - 1 if base else None


def _last_settled(snapshot: Snapshot | None) -> int | None:
    """Return the offset below which messages were settled; None if none was."""
    if snapshot is None:
        return None
    some = snapshot.next_offset > len(snapshot.unsettled) or snapshot.settled
    return snapshot.next_offset - 1 if some else None


def _beginning(cursor_id: str, offset: int) -> Snapshot:
    return Snapshot(0 if cursor_id.startswith(beginning_cursor("")) else offset + 1)
