"""One broker's state: what it knows of streams and groups, and what it does for them.

Pure: time and choices come in as arguments, nothing waits.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol

from liftbridge_aio.model import AckPolicy, BrokerInfo

from .bus import Bus
from .errors import BrokerError, Code, PublishCode, PublishRefused
from .group_liveness import GroupLiveness
from .groups import ConsumerGroups
from .incoming import Incoming
from .loads import BrokerLoads
from .log import PartitionLog
from .operations import (
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
from .partition import Partition
from .stream import Stream

_NANOSECONDS: Final = 10**9

_log = logging.getLogger("liftbridge_aio.broker")


class Storage(Protocol):
    """Where a broker keeps its logs."""

    def open_log(self, stream: CreateStream, index: int, number: int) -> PartitionLog:
        """Open the log of a partition: what is kept, or an empty one.

        Args:
            stream: what was created.
            index: the creation's index; tells a stream from an earlier one of the same name.
            number: of the partition.

        Raises:
            OSError: what is kept cannot be read.
        """

    def remove_stream(self, index: int) -> None:
        """Forget what else is kept of a deleted stream."""


class Node:
    """Applies operations in order, leads and follows partitions while it runs."""

    def __init__(self, server_id: str, bus: Bus, storage: Storage, consumer_timeout: float) -> None:
        """Begin without streams, not running.

        Args:
            server_id: id of the broker.
            bus: carries messages between brokers.
            storage: where the logs are.
            consumer_timeout: seconds without a sign of life after which a member of a group is
                expelled.
        """
        self.server_id = server_id
        self.info = BrokerInfo(server_id, "", 0)
        """Where the broker listens."""
        self.groups = ConsumerGroups(server_id, self._partition_count)
        self.liveness = GroupLiveness(round(consumer_timeout * _NANOSECONDS))
        self.loads = BrokerLoads()
        self.applied = 0
        """Index of the last operation that it knows of."""
        self.published_activity = 0
        """Index of the last operation that the activity stream tells of."""
        self.is_running = False
        self.on_append: Callable[[Partition], None] | None = None
        """Told when there is something for followers to fetch."""
        self._is_deaf = False
        self._bus = bus
        self._storage = storage
        self._streams: dict[str, Stream] = {}
        self._awakened: list[Partition] = []
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
            PublishActivity: self._note_activity,
        }

    @property
    def streams(self) -> Sequence[Stream]:
        """All streams, oldest first."""
        return tuple(self._streams.values())

    def stream(self, name: str) -> Stream | None:
        """Return a stream, or None."""
        return self._streams.get(name)

    def partition(self, stream: str, number: int) -> Partition | None:
        """Return a partition, or None."""
        found = self._streams.get(stream)
        return None if found is None else found.partitions.get(number)

    def partitions(self) -> Iterator[Partition]:
        """Go through all partitions of all streams."""
        for stream in self._streams.values():
            yield from stream.partitions.values()

    def leads(self, partition: Partition) -> bool:
        """Tell whether metadata says that this broker leads a partition, paused or not."""
        return partition.leader == self.server_id

    def start(self, now: int) -> None:
        """Begin to lead and follow, with all logs open.

        Raises:
            OSError: a log cannot be opened; `stop` is to follow.
        """
        self.is_running = True
        self._is_deaf = False
        for partition in self.partitions():
            partition.open()
            self._take_role(partition, now)
        self.liveness.restart(self.groups, now)

    def stop(self) -> None:
        """Stop to lead and follow, as when the process ends; what is stored is kept."""
        self.is_running = False
        for partition in self.partitions():
            self._bus.ignore(partition)
            partition.rest()

    def take_awakened(self) -> Sequence[Partition]:
        """Return the partitions that began to lead or follow since the last call."""
        awakened, self._awakened = self._awakened, []
        return awakened

    def deafen(self) -> None:
        """Hear nothing of what is published, until `hear` or `start`; it is lost."""
        self._is_deaf = True
        for partition in self.partitions():
            self._bus.ignore(partition)

    def hear(self) -> None:
        """Undo `deafen`; nothing happens if the broker is not deaf."""
        if not self._is_deaf:
            return
        self._is_deaf = False
        for partition in self.partitions():
            if partition.leading is not None:
                self._listen(partition)

    def apply(self, index: int, operation: Operation, now: int) -> None:
        """Do what an operation says. They come in order, without gaps that matter.

        Args:
            index: the operation's place in the list.
            operation: what happens.
            now: Unix nanoseconds.
        """
        self._appliers[type(operation)](operation, index, now)
        self.applied = index

    def check_publish(self, name: str, number: int, ack_policy: int) -> None:
        """Refuse what the partition certainly would not store (W8).

        Raises:
            PublishRefused: there is no such partition, it is read-only, or it checks offsets and
                the publisher does not want to know.
        """
        stream = self._streams.get(name)
        if stream is None:
            raise PublishRefused(PublishCode.NOT_FOUND, f"no such stream: {name}")
        partition = stream.partitions.get(number)
        if partition is None:
            raise PublishRefused(PublishCode.NOT_FOUND, f"no such partition: {number}")
        if partition.log.readonly:
            raise PublishRefused(PublishCode.READONLY, f"readonly partition: {number}")
        if partition.log.concurrency_control and ack_policy == AckPolicy.NONE:
            text = "stream with concurrency control must have AckPolicy set"
            raise PublishRefused(PublishCode.BAD_REQUEST, text)

    def deliver(
        self, subject: str, incoming: Incoming, now: int, choose: Callable[[int], int]
    ) -> None:
        """Publish to a subject; arguments and errors are those of `Bus.publish`."""
        self._bus.publish(subject, incoming, now, choose)

    def asleep(self, name: str, number: int) -> tuple[int, ...]:
        """List what a publish or subscribe to an existing partition wakes.

        It is that partition, or after a pause with `resume_all` every paused one of the stream.
        """
        stream = self._streams[name]
        awake = stream.partitions.values() if stream.resume_all else [stream.partitions[number]]
        return tuple(partition.number for partition in awake if partition.is_paused)

    def existing(self, name: str, numbers: Sequence[int]) -> Sequence[Partition]:
        """Return partitions of a stream; no numbers mean all.

        Raises:
            BrokerError: there is no such stream or partition.
        """
        stream = self._streams.get(name)
        if stream is None:
            # The real server looks the partitions up first when it is given none.
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
            self._bus.ignore(partition)
            if self.is_running:
                partition.delete()
        self._storage.remove_stream(stream.index)
        self.loads.take(stream.partitions.values())
        self._change_group(operation, index, now)

    def _pause(self, operation: PauseStream, _index: int, _now: int) -> None:
        partitions = self.existing(operation.stream, operation.partitions)
        for partition in partitions:
            partition.pause(operation.at)
            self._bus.ignore(partition)
        self.loads.take(partitions)
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
        self._bus.ignore(partition)
        partition.change_leader(operation.leader, index)
        self._take_role(partition, now)

    def _change_group(self, operation: Operation, index: int, now: int) -> None:
        self.groups.apply(operation, index)
        if self.is_running:
            self.liveness.follow(self.groups, operation, now)

    def _note_activity(self, operation: PublishActivity, _index: int, _now: int) -> None:
        self.published_activity = operation.index

    def _take_role(self, partition: Partition, now: int) -> None:
        if not self.is_running or partition.is_paused:
            return
        try:
            self._lead_or_follow(partition, now)
        except OSError:
            _log.exception("cannot open the log of %s/%d", partition.stream, partition.number)
            partition.break_off()

    def _lead_or_follow(self, partition: Partition, now: int) -> None:
        self._awakened.append(partition)
        if self.leads(partition):
            partition.lead(now)
            self._listen(partition)
            self._appended(partition)
        elif partition.is_replica and partition.leader:
            partition.follow(now)
            self._appended(partition)
        else:
            partition.rest()

    def _listen(self, partition: Partition) -> None:
        if not self._is_deaf:  # else once it hears again, and only once
            self._bus.listen(partition, self._streams[partition.stream].group)

    def _appended(self, partition: Partition) -> None:
        if self.on_append is not None:
            self.on_append(partition)
