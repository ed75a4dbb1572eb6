"""The state of the cluster: which streams exist, and what happens to them.

Pure: time and choices come in as arguments, nothing waits. Texts and codes of refusals are those
of Liftbridge 1.9.0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from liftbridge_aio.model import RESERVED_STREAMS, Ack, AckPolicy, StreamInfo
from liftbridge_aio.names import group_problem, stream_name_problem, subject_problem

from .errors import BrokerError, Code, PublishCode, PublishRefused
from .incoming import Incoming
from .partition import Partition
from .stream_config import StreamConfig
from .subjects import SubjectTable, can_be_listened_on, is_valid_subject, partition_subject

MAX_REPLICATION: Final = -1
"""The replication factor that means "all brokers"."""

MAX_PARTITIONS: Final = 10_000
"""More partitions in one stream are refused: one request must not take all memory."""

_CLUSTER_SIZE: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRequest:
    """What a CreateStream asks for; 0 partitions or replicas mean one."""

    name: str
    subject: str
    group: str = ""
    replication_factor: int = 0
    partitions: int = 0
    config: StreamConfig = field(default_factory=StreamConfig)


class Stream:
    """A stream and its partitions."""

    def __init__(self, request: StreamRequest, created: int) -> None:
        """Begin with empty partitions.

        Args:
            request: what was asked for, already checked.
            created: Unix nanoseconds; tells a stream from an earlier one of the same name.
        """
        self.name = request.name
        self.subject = request.subject
        self.group = request.group
        self.config = request.config
        self.created = created
        self.resume_all = False
        self.partitions = {
            number: Partition(request.name, request.subject, number, request.config)
            for number in range(max(request.partitions, 1))
        }

    def info(self, server_id: str) -> StreamInfo:
        """Describe the stream for metadata."""
        partitions = {number: one.info(server_id) for number, one in self.partitions.items()}
        return StreamInfo(self.name, self.subject, MappingProxyType(partitions), self.created)


class ClusterState:
    """Streams of the broker and the subjects on which their partitions listen."""

    def __init__(self, max_message_bytes: int, max_payload_bytes: int) -> None:
        """Begin without streams.

        Args:
            max_message_bytes: largest envelope that a partition takes
                (`clustering.replication.max.bytes` of a real server).
            max_payload_bytes: largest envelope that can be published at all (`max_payload` of
                NATS).
        """
        self._max_message_bytes = max_message_bytes
        self._max_payload_bytes = max_payload_bytes
        self._streams: dict[str, Stream] = {}
        self._subjects: SubjectTable[Partition] = SubjectTable()
        self._partition_load = 0

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

    @property
    def partition_load(self) -> int:
        """How many partitions metadata says that this broker keeps and leads.

        It goes up when a partition is created or resumed, and down when one is paused or deleted.
        As on a real server nobody looks whether it was paused already: then it goes down once
        more, though never below zero.
        """
        return self._partition_load

    def create_stream(
        self, request: StreamRequest, now: int, *, encryption_key_bytes: int = 0
    ) -> None:
        """Create a stream on behalf of a client.

        Args:
            request: what is wanted.
            now: Unix nanoseconds.
            encryption_key_bytes: length of the server's encryption key.

        Raises:
            BrokerError: as a real server refuses it, or with INVALID_ARGUMENT what would crash
                one (W30).
        """
        if not request.name:
            raise BrokerError(Code.INVALID_ARGUMENT, "Name cannot be empty")
        if not is_valid_subject(request.subject):
            raise BrokerError(Code.INVALID_ARGUMENT, "Subject is invalid")
        _refuse_reserved(request.name)
        if not 0 <= request.partitions <= MAX_PARTITIONS:
            text = f"Invalid partitions {request.partitions}"
            raise BrokerError(Code.INVALID_ARGUMENT, text)
        last = partition_subject(request.subject, max(request.partitions - 1, 0))
        if not can_be_listened_on(last):
            raise BrokerError(Code.INVALID_ARGUMENT, "Subject is invalid")
        _refuse_deadly_names(request)
        request.config.validate()
        if request.config.encryption and encryption_key_bytes not in (16, 32):
            text = (
                "Failed on preconditions for stream's encryption handler: kwp: invalid AES key"
                f" size; want 16 or 32, got {encryption_key_bytes}"
            )
            raise BrokerError(Code.FAILED_PRECONDITION, text)
        if request.replication_factor < MAX_REPLICATION:
            text = f"Invalid replicationFactor {request.replication_factor}"
            raise BrokerError(Code.INVALID_ARGUMENT, text)
        if request.replication_factor > _CLUSTER_SIZE:
            text = (
                f"Invalid replicationFactor {request.replication_factor},"
                f" cluster size {_CLUSTER_SIZE}"
            )
            raise BrokerError(Code.INVALID_ARGUMENT, text)
        if request.name in self._streams:
            raise BrokerError(Code.ALREADY_EXISTS, "stream already exists")
        self.add_stream(request, now)

    def add_stream(self, request: StreamRequest, now: int) -> None:
        """Create a stream without asking whether a client may: internal ones, for example."""
        stream = self._streams[request.name] = Stream(request, now)
        for partition in stream.partitions.values():
            self._listen(stream, partition)
        self._partition_load += len(stream.partitions)

    def delete_stream(self, name: str) -> None:
        """Delete a stream and everything in it; readers are told.

        Raises:
            BrokerError: there is no such stream, or it is an internal one.
        """
        _refuse_reserved(name)
        stream = self._streams.pop(name, None)
        if stream is None:
            raise BrokerError(Code.NOT_FOUND, "stream does not exist")
        for partition in stream.partitions.values():
            self._subjects.remove(partition.subject, partition)
            partition.log.delete()
        self._take_off_load(len(stream.partitions))

    def pause(self, name: str, numbers: Sequence[int], resume_all: bool, now: int) -> None:
        """Pause partitions; no numbers mean all. The latest `resume_all` of a stream holds.

        Raises:
            BrokerError: there is no such stream or partition; nothing is paused then.
        """
        stream, partitions = self._existing(name, numbers)
        for partition in partitions:
            partition.pause(now)
            self._subjects.remove(partition.subject, partition)
        self._take_off_load(len(partitions))
        stream.resume_all = resume_all

    def set_readonly(self, name: str, numbers: Sequence[int], readonly: bool, now: int) -> None:
        """Make partitions read-only or writable; no numbers mean all.

        Raises:
            BrokerError: there is no such stream or partition; nothing is changed then.
        """
        _, partitions = self._existing(name, numbers)
        for partition in partitions:
            partition.set_readonly(readonly, now)

    def resume(self, name: str, number: int, now: int) -> None:
        """Wake what a publish or subscribe to an existing partition wakes.

        It is that partition, or after a pause with `resume_all` every paused one of the stream.
        """
        stream = self._streams[name]
        awake = stream.partitions.values() if stream.resume_all else [stream.partitions[number]]
        for partition in awake:
            if partition.is_paused:
                partition.resume(now)
                self._listen(stream, partition)
                self._partition_load += 1

    def publish(
        self,
        name: str,
        number: int,
        incoming: Incoming,
        now: int,
        choose: Callable[[int], int],
    ) -> list[Ack]:
        """Publish to a partition: wake it where it is paused, then send to its subject.

        Arguments and result are those of `deliver`.

        Raises:
            PublishRefused: the message is stored nowhere.
        """
        self._check_publish(name, number, incoming.ack_policy)
        self.resume(name, number, now)
        subject = self._streams[name].partitions[number].subject
        return self.deliver(subject, incoming, now, choose)

    def deliver(
        self, subject: str, incoming: Incoming, now: int, choose: Callable[[int], int]
    ) -> list[Ack]:
        """Store a message in every partition that listens on `subject` (W12).

        Args:
            subject: where it is published.
            incoming: the message.
            now: Unix nanoseconds.
            choose: picks one of a queue group: is given their number, returns an index.

        Returns:
            What the publisher is told, one ack or refusal for each partition that answers.

        Raises:
            PublishRefused: NATS would not take the message or its inbox, or no server could store
                its headers.
        """
        inbox = incoming.ack_inbox
        if incoming.inbox_is_awaited and not (
            is_valid_subject(inbox) and can_be_listened_on(inbox)
        ):
            text = "failed to subscribe to ack inbox: nats: invalid subject"
            raise PublishRefused(PublishCode.UNKNOWN, text)
        if not subject:
            text = "failed to publish to NATS: nats: invalid subject"
            raise PublishRefused(PublishCode.INTERNAL, text)
        if incoming.measure(subject) > self._max_payload_bytes:
            text = "failed to publish to NATS: nats: maximum payload exceeded"
            raise PublishRefused(PublishCode.INTERNAL, text)
        problem = incoming.header_problem
        if problem is not None:
            raise PublishRefused(PublishCode.BAD_REQUEST, problem)
        acks = []
        for partition in self._subjects.receivers(subject, choose):
            ack = partition.receive(subject, incoming, now, self._max_message_bytes)
            if ack is not None:
                acks.append(ack)
        return acks

    def _check_publish(self, name: str, number: int, ack_policy: int) -> None:
        # What the partition certainly would not store (W8).
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

    def _take_off_load(self, count: int) -> None:
        self._partition_load = max(self._partition_load - count, 0)

    def _listen(self, stream: Stream, partition: Partition) -> None:
        self._subjects.add(partition.subject, stream.group, partition)

    def _existing(self, name: str, numbers: Sequence[int]) -> tuple[Stream, Sequence[Partition]]:
        stream = self._streams.get(name)
        if stream is None:
            # The real server looks the partitions up first when it is given none.
            text = "stream does not exist" if numbers else "stream not found"
            raise BrokerError(Code.NOT_FOUND, text)
        if not numbers:
            return stream, tuple(stream.partitions.values())
        if not all(number in stream.partitions for number in numbers):
            raise BrokerError(Code.NOT_FOUND, "partition does not exist")
        return stream, [stream.partitions[number] for number in numbers]


def _refuse_deadly_names(request: StreamRequest) -> None:
    problem = stream_name_problem(request.name) or group_problem(request.group)
    # On ">" a real server lives on, whatever else it may take in.
    if problem is None and request.subject != ">":
        problem = subject_problem(request.subject)
    if problem is not None:
        raise BrokerError(Code.INVALID_ARGUMENT, problem)


def _refuse_reserved(name: str) -> None:
    if name in RESERVED_STREAMS:
        raise BrokerError(Code.INVALID_ARGUMENT, "Stream is reserved")
