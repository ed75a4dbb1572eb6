"""One broker's state: the streams and groups that it knows, and the operations on them.

Pure: time and random choices come in as arguments, nothing waits.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol

from liftbridge_aio.broker.errors import BrokerError, Code, PublishCode, PublishRefused
from liftbridge_aio.broker.flaws import FLAWLESS, Flaws
from liftbridge_aio.broker.storage.core.log import PartitionLog
from liftbridge_aio.broker.storage.core.operations import (
    ChangeGroupCoordinator,
    ChangeLeader,
    CreateConsumerGroup,
    CreateStream,
    DeleteStream,
    ExpandIsr,
    JoinConsumerGroup,
    LeaveConsumerGroup,
    Operation,
    PauseStream,
    PublishActivity,
    ResumeStream,
    SetStreamReadonly,
    ShrinkIsr,
)
from liftbridge_aio.model import AckPolicy, BrokerInfo

from .bus import Bus
from .group_liveness import GroupLiveness
from .groups import ConsumerGroups
from .incoming import Incoming
from .partition import Partition
from .stream import BrokerLoads, Stream

_NANOSECONDS: Final = 10**9

logger = logging.getLogger("liftbridge_aio.broker")


class Storage(Protocol):
    """Storage of a broker's logs."""

    def open_log(self, stream: CreateStream, index: int, number: int) -> PartitionLog:
        """Open the log of a partition, or create it.

        Args:
            stream: the creation of the stream.
            index: index of the creation; identifies the stream among others of the same name.
            number: number of the partition.

        Raises:
            OSError: stored data cannot be read.
        """

    def remove_stream(self, index: int) -> None:
        """Delete what remains of a deleted stream besides its logs."""


class Node:
    """Applies operations in order; leads and follows partitions while it is running."""

    def __init__(
        self,
        server_id: str,
        bus: Bus,
        storage: Storage,
        consumer_timeout: float,
        flaws: Flaws = FLAWLESS,
    ) -> None:
        """Create a node without streams, not running.

        Args:
            server_id: id of the broker.
            bus: carries messages between nodes.
            storage: opens the logs.
            consumer_timeout: seconds without a heartbeat after which a member of a group is
                expelled.
            flaws: what it does wrong.
        """
        self.server_id = server_id
        self.info = BrokerInfo(server_id, "", 0)
        """Id and address of the broker."""
        self.groups = ConsumerGroups(server_id, self._partition_count)
        self.liveness = GroupLiveness(round(consumer_timeout * _NANOSECONDS))
        self.loads = BrokerLoads()
        self.applied = 0
        """Index of the last operation that was applied."""
        self.published_activity = 0
        """Index of the last operation with an event in the activity stream."""
        self.is_running = False
        self.on_append: Callable[[Partition], None] | None = None
        """Called with a partition when there are messages for its followers to fetch."""
        self._is_unsubscribed = False
        self._bus = bus
        self._flaws = flaws
        self._storage = storage
        self._streams: dict[str, Stream] = {}
        self._visible: dict[str, Stream] = self._streams
        """The streams that requests see: none between `forget` and `remember`."""
        self._activated: list[Partition] = []
        self._appliers: dict[type[Operation], Callable[..., None]] = {
            CreateStream: self._create_stream,
            DeleteStream: self._delete_stream,
            PauseStream: self._pause,
            ResumeStream: self._resume,
            SetStreamReadonly: self._set_readonly,
            ShrinkIsr: self._shrink_isr,
            ExpandIsr: self._expand_isr,
            ChangeLeader: self._change_leader,
            CreateConsumerGroup: self._change_group,
            JoinConsumerGroup: self._change_group,
            LeaveConsumerGroup: self._change_group,
            ChangeGroupCoordinator: self._change_group,
            PublishActivity: self._record_activity,
        }

    @property
    def streams(self) -> Sequence[Stream]:
        """All streams, oldest first."""
        return tuple(self._visible.values())

    def stream(self, name: str) -> Stream | None:
        """Return a stream, or None."""
        return self._visible.get(name)

    def partition(self, stream: str, number: int) -> Partition | None:
        """Return a partition, or None."""
        found = self._visible.get(stream)
        return None if found is None else found.partitions.get(number)

    def partitions(self) -> Iterator[Partition]:
        """Iterate over the partitions of all streams."""
        for stream in self._streams.values():
            yield from stream.partitions.values()

    def replicas(self) -> Iterator[Partition]:
        """Iterate over the partitions of which this broker is a replica."""
        for stream in self._streams.values():
            yield from stream.replicas

    def leads(self, partition: Partition) -> bool:
        """Return True if this broker is the leader in metadata, even of a paused partition."""
        return partition.leader == self.server_id

    def start(self, now: int) -> None:
        """Open all logs, then lead and follow partitions.

        Raises:
            OSError: a log cannot be opened; call `stop` then.
        """
        self.is_running = True
        self._is_unsubscribed = False
        for partition in self.partitions():
            log = partition.open()
            if self._flaws.loses_watermark:
                log.lose_high_watermark()
            self._take_role(partition, now)
        self.liveness.reset(self.groups, now)

    @property
    def is_forgetful(self) -> bool:
        """True if requests see no streams, or no groups."""
        return self._visible is not self._streams or self.groups.is_forgetful

    def forget(self) -> None:
        """Answer as if there were no streams and groups, until `remember`."""
        self._visible = {}
        self.groups.forget()

    def remember(self) -> None:
        """Undo `forget`."""
        self._visible = self._streams
        self.groups.remember()

    def stop(self) -> None:
        """Stop leading and following, as when a process ends; stored data is kept."""
        self.is_running = False
        for partition in self.partitions():
            self._bus.unsubscribe(partition)
            partition.deactivate()

    def note_high_watermarks(self) -> None:
        """Note the high watermarks of all logs, which `start` may return to."""
        if self._flaws.loses_watermark:
            for partition in self.partitions():
                partition.note_high_watermark()

    def take_activated(self) -> Sequence[Partition]:
        """Return the partitions that began to lead or follow since the last call."""
        awakened, self._activated = self._activated, []
        return awakened

    def unsubscribe(self) -> None:
        """Receive no published messages until `resubscribe` or `start`; they are lost."""
        self._is_unsubscribed = True
        for partition in self.partitions():
            self._bus.unsubscribe(partition)

    def resubscribe(self) -> None:
        """Undo `unsubscribe`; nothing happens if it was not called."""
        if not self._is_unsubscribed:
            return
        self._is_unsubscribed = False
        for partition in self.partitions():
            if partition.leadership is not None:
                self._subscribe(partition)

    def apply(self, index: int, operation: Operation, now: int) -> None:
        """Apply the next operation.

        Args:
            index: index of the operation; greater than `applied`.
            operation: the operation.
            now: Unix nanoseconds.
        """
        self._appliers[type(operation)](operation, index, now)
        self.applied = index

    def check_publish(self, name: str, number: int, ack_policy: int) -> None:
        """Check a publish before it is sent to the bus.

        Raises:
            PublishRefused: there is no such partition, it is read-only, or it checks expected
                offsets and the ack policy is NONE.
        """
        stream = self._visible.get(name)
        if stream is None:
            raise PublishRefused(PublishCode.NOT_FOUND, f"no such stream: {name}")
        partition = stream.partitions.get(number)
        if partition is None:
            raise PublishRefused(PublishCode.NOT_FOUND, f"no such partition: {number}")
        if partition.log.readonly:
            raise PublishRefused(PublishCode.READONLY, f"readonly partition: {number}")
        if partition.log.concurrency_control and ack_policy == AckPolicy.NONE:
            raise PublishRefused(
                PublishCode.BAD_REQUEST, "stream with concurrency control must have AckPolicy set"
            )

    def publish_to_subject(
        self, subject: str, incoming: Incoming, now: int, choose: Callable[[int], int]
    ) -> None:
        """Publish to a subject; arguments and errors are those of `Bus.publish`."""
        self._bus.publish(subject, incoming, now, choose)

    def to_resume(self, name: str, number: int) -> tuple[int, ...]:
        """Return the partitions that a publish or subscribe to an existing partition resumes.

        That is the partition, or after a pause with `resume_all` every paused one of the stream.
        """
        stream = self._streams[name]
        candidates = (
            stream.partitions.values() if stream.resume_all else [stream.partitions[number]]
        )
        return tuple(partition.number for partition in candidates if partition.is_paused)

    def existing(self, name: str, numbers: Sequence[int]) -> Sequence[Partition]:
        """Return partitions of a stream; no numbers mean all.

        Raises:
            BrokerError: there is no such stream or partition.
        """
        stream = self._visible.get(name)
        if stream is None:
            # A real server looks the partitions up first when the request names none.
            text = "stream does not exist" if numbers else "stream not found"
            raise BrokerError(Code.NOT_FOUND, text)
        if not numbers:
            return tuple(stream.partitions.values())
        if not all(number in stream.partitions for number in numbers):
            raise BrokerError(Code.NOT_FOUND, "partition does not exist")
        return [stream.partitions[number] for number in numbers]

    def _partition_count(self, stream: str) -> int:
        found = self._streams.get(stream)
        return 0 if found is None else len(found.partitions)

    def _create_stream(self, operation: CreateStream, index: int, now: int) -> None:
        stream = Stream(
            operation,
            index,
            self.server_id,
            lambda number: self._storage.open_log(operation, index, number),
        )
        self._streams[operation.name] = stream
        self.loads.add(stream.partitions.values())
        for partition in stream.partitions.values():
            partition.on_append = self._appended
            self._take_role(partition, now)

    def _delete_stream(self, operation: DeleteStream, index: int, now: int) -> None:
        stream = self._streams.pop(operation.stream)
        for partition in stream.partitions.values():
            self._bus.unsubscribe(partition)
            if self.is_running:
                partition.delete()
        self._storage.remove_stream(stream.index)
        self.loads.remove(stream.partitions.values())
        self._change_group(operation, index, now)

    def _pause(self, operation: PauseStream, _index: int, _now: int) -> None:
        partitions = self.existing(operation.stream, operation.partitions)
        for partition in partitions:
            partition.pause(operation.at)
            self._bus.unsubscribe(partition)
        self.loads.remove(partitions)
        self._streams[operation.stream].resume_all = operation.resume_all

    def _resume(self, operation: ResumeStream, _index: int, now: int) -> None:
        for partition in self.existing(operation.stream, operation.partitions):
            if partition.is_paused:
                partition.resume(operation.at)
                self.loads.add([partition])
                self._take_role(partition, now)

    def _set_readonly(self, operation: SetStreamReadonly, _index: int, _now: int) -> None:
        for partition in self.existing(operation.stream, operation.partitions):
            partition.set_readonly(operation.readonly, operation.at)

    def _shrink_isr(self, operation: ShrinkIsr, _index: int, now: int) -> None:
        partition = self.partition(operation.stream, operation.partition)
        if partition is not None and operation.replica in partition.isr:
            partition.isr.remove(operation.replica)
            partition.advance(now)

    def _expand_isr(self, operation: ExpandIsr, _index: int, now: int) -> None:
        partition = self.partition(operation.stream, operation.partition)
        if partition is not None and operation.replica not in partition.isr:
            partition.isr.append(operation.replica)
            partition.advance(now)  # there may be enough replicas in sync again

    def _change_leader(self, operation: ChangeLeader, index: int, now: int) -> None:
        partition = self.partition(operation.stream, operation.partition)
        if partition is None:
            return
        self.loads.change_leader(partition.leader, operation.leader)
        self._bus.unsubscribe(partition)
        partition.change_leader(operation.leader, index)
        self._take_role(partition, now)

    def _change_group(self, operation: Operation, index: int, now: int) -> None:
        self.groups.apply(operation, index)
        if self.is_running:
            self.liveness.apply(self.groups, operation, now)

    def _record_activity(self, operation: PublishActivity, _index: int, _now: int) -> None:
        self.published_activity = operation.index

    def _take_role(self, partition: Partition, now: int) -> None:
        if not self.is_running or partition.is_paused:
            return
        try:
            self._lead_or_follow(partition, now)
        except OSError:
            logger.exception("cannot open the log of %s/%d", partition.stream, partition.number)
            partition.discard_log()

    def _lead_or_follow(self, partition: Partition, now: int) -> None:
        self._activated.append(partition)
        if self.leads(partition):
            partition.lead(now)
            if not self._flaws.hides_committed:
                partition.advance(now)
            self._subscribe(partition)
            self._appended(partition)
        elif partition.is_replica and partition.leader:
            partition.follow(now)
            self._appended(partition)
        else:
            partition.deactivate()

    def _subscribe(self, partition: Partition) -> None:
        if not self._is_unsubscribed:  # else in `resubscribe`, and only once
            self._bus.subscribe(partition, self._streams[partition.stream].group)

    def _appended(self, partition: Partition) -> None:
        if self.on_append is not None:
            self.on_append(partition)
