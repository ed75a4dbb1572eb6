"""The values of the public API: messages, acks, positions, metadata.

`Message` and `Ack` are made once per message, so they are plain slotted dataclasses: a frozen one
costs several times as much to make. Treat them as read-only all the same. Everything else here is
frozen. Timestamps are Unix nanoseconds as the server writes them (a `datetime` would lose three
digits); the `time` properties give an aware `datetime` for those who want one.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Literal,
    NamedTuple,
    Protocol,
    Self,
    TypeAlias,
    TypedDict,
)

from ._core.addresses import format_address
from ._core.arguments import INT64_MAX, check_type, check_whole_number
from .errors import InvalidRequest, MalformedData, WrongType

if TYPE_CHECKING:
    from .options import Duration
    from .retry import Retry

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

ANY_STREAM: Final = "*"
"""Any stream, where `expected` streams are named; no stream can have this name."""
CURSORS_STREAM: Final = "__cursors"
"""The internal stream in which servers store cursors."""

ACTIVITY_STREAM: Final = "__activity"
"""The internal stream to which servers write events of streams and groups."""

RESERVED_STREAMS: Final = frozenset({CURSORS_STREAM, ACTIVITY_STREAM})
"""Streams that only the server creates, writes and deletes."""

RESERVED_HEADERS: Final = frozenset({"subject", "reply"})
"""Names of headers that the server sets in every message, replacing the publisher's."""

UUID_HEADER: Final = "txn-uuid"
"""Header with the UUID of a producer's message, 16 bytes."""

ACK_HEADER: Final = "txn-ack"
"""Header that makes a message an ack of transactions: the version of the format, one byte."""

TRANSACTION_HEADERS: Final = frozenset({UUID_HEADER, ACK_HEADER})
"""Names of headers that transactions set; they are no headers of the publisher."""

UNCHECKED_OFFSET: Final = -1
"""Value on the wire for "no expected offset"."""


def datetime_from_ns(timestamp: int) -> datetime:
    """Turn Unix nanoseconds into an aware `datetime` in UTC (microseconds; the rest is cut)."""
    return _EPOCH + timedelta(microseconds=timestamp // 1000)


def ns_from_datetime(moment: datetime) -> int:
    """Turn an aware `datetime` into Unix nanoseconds, without a float in between.

    Raises:
        InvalidRequest: `moment` has no time zone, so the instant is not known.
    """
    if moment.tzinfo is None or moment.utcoffset() is None:
        raise InvalidRequest(
            f"{moment!r} has no time zone; use an aware datetime, for example with tzinfo=UTC"
        )
    return (moment - _EPOCH) // timedelta(microseconds=1) * 1000


class AckPolicy(enum.IntEnum):
    """When the server confirms a published message."""

    LEADER = 0
    """Once the leader of the partition has stored it."""
    ALL = 1
    """Once every in-sync replica has stored it."""
    NONE = 2
    """Never: fire and forget."""


Acked: TypeAlias = Literal[AckPolicy.LEADER, AckPolicy.ALL]
"""Policies with which there is an ack."""


class AckError(enum.IntEnum):
    """The reason why a server refused a message, as carried in `Ack.ack_error`."""

    OK = 0
    UNKNOWN = 1
    INCORRECT_OFFSET = 2
    TOO_LARGE = 3
    ENCRYPTION = 4


class _Unread:
    """Holds the encoded form of a value until a field that is not decoded yet is accessed."""

    __slots__ = ("_read", "_unread")

    _unread: bytes
    _read: Callable[[bytes], Any]


@dataclass(slots=True, eq=True)
class Message(_Unread):
    """A message read from a partition.

    `headers` holds the publisher's headers, so `publish(other, m.value, key=m.key,
    headers=m.headers)` forwards a message as it is. The headers `subject` and `reply`, which the
    server writes into every message over the publisher's own, are `subject` and `reply_subject`;
    those of transactions are `transaction_headers`, so that no forwarded message takes part in the
    transaction of another one.
    """

    stream: str
    partition: int
    offset: int
    key: bytes
    """Empty if the publisher gave none: the wire format cannot tell the two apart."""
    value: bytes
    timestamp: int
    """When the leader received it, in Unix nanoseconds."""
    headers: Mapping[str, bytes] = field(default_factory=dict)
    subject: str = ""
    """The NATS subject on which it arrived."""
    reply_subject: str = ""
    """The NATS reply subject that came with it; empty for most messages."""
    transaction_headers: Mapping[str, bytes] = field(default_factory=dict)
    """The headers that make it part of a transaction, or its ack; empty for most messages."""

    @property
    def time(self) -> datetime:
        """`timestamp` as an aware `datetime` in UTC."""
        return datetime_from_ns(self.timestamp)

    @staticmethod
    def received(
        rows: Iterable[MessageRow], read_headers: Callable[[bytes], HeadersRow]
    ) -> list[Message]:
        """Make many messages at once; for the codec.

        Args:
            rows: the fields of each message in the order of the constructor. Bytes in place of the
                headers are kept, and read when the headers are asked for.
            read_headers: reads those bytes. It must not fail.
        """
        messages: list[Message] = []
        new = Message.__new__  # __init__ would cost as much again as all the rest
        for row in rows:
            message = new(Message)
            (
                message.stream,
                message.partition,
                message.offset,
                message.key,
                message.value,
                message.timestamp,
                headers,
                message.subject,
                message.reply_subject,
            ) = row
            if isinstance(headers, bytes):
                message._unread = headers  # type: ignore[misc]  # noqa: SLF001 - the slot is inherited
                message._read = read_headers  # noqa: SLF001 - same
            else:
                message.headers, message.transaction_headers = headers
            messages.append(message)
        return messages

    def __reduce__(self) -> tuple[type[Message], tuple[object, ...]]:
        # Copied and pickled with its headers read: whoever gets it may have no codec.
        return type(self), tuple(getattr(self, one.name) for one in fields(self))

    if not TYPE_CHECKING:  # else every name would pass for an attribute

        def __getattr__(self, name: str) -> object:
            # Python comes here for what is not set, so only once for unread headers.
            if name == "headers":
                self.headers = headers = self._read(self._unread)[0]
                return headers
            if name == "transaction_headers":
                self.transaction_headers = headers = self._read(self._unread)[1]
                return headers
            return object.__getattribute__(self, name)  # raises what it always raises


HeadersRow: TypeAlias = tuple[Mapping[str, bytes], Mapping[str, bytes]]
"""The headers of the publisher, and those of transactions."""

MessageRow: TypeAlias = tuple[str, int, int, bytes, bytes, int, HeadersRow | bytes, str, str]
"""The fields of a message; bytes stand for headers that are not read yet."""


@dataclass(slots=True, eq=True)
class Ack(_Unread):
    """The receipt of a published message, with every field of the wire."""

    stream: str
    partition_subject: str
    """The subject of the stream, whichever partition stored the message."""
    msg_subject: str
    """The NATS subject on which the message arrived; see `partition`."""
    offset: int
    ack_inbox: str = ""
    correlation_id: str = ""
    ack_policy: AckPolicy = AckPolicy.LEADER
    reception_timestamp: int = 0
    """When the leader received the message, in Unix nanoseconds."""
    commit_timestamp: int = 0
    """When the ack was sent, in Unix nanoseconds; 0 where the server did not say."""
    ack_error: AckError = AckError.OK
    """Anything but OK is a refusal. The client turns those into exceptions; look at it yourself
    only on an ack that you decoded with `liftbridge_aio.wire.envelope`."""

    @property
    def partition(self) -> int:
        """The partition that stored the message.

        Acks have no field for it, so it is read from their subjects: partition 0 listens on the
        subject of the stream, and partition N on `<subject>.N`.

        Raises:
            MalformedData: the server sent subjects that do not belong together.
        """
        more = self.msg_subject.count(".") - self.partition_subject.count(".")
        if not more or self.partition_subject.endswith(">"):
            return 0  # a stream whose subject ends with > has no other partition
        number = self.msg_subject.rpartition(".")[2]
        if more != 1 or not number.isdecimal() or len(number) > _INT32_DIGITS:
            raise MalformedData(
                f"an ack with the subject {self.msg_subject!r} is from no partition of a stream on"
                f" {self.partition_subject!r}",
                stream=self.stream,
                offset=self.offset,
            )
        return int(number)

    @property
    def reception_time(self) -> datetime:
        """`reception_timestamp` as an aware `datetime` in UTC."""
        return datetime_from_ns(self.reception_timestamp)

    @property
    def commit_time(self) -> datetime:
        """`commit_timestamp` as an aware `datetime` in UTC."""
        return datetime_from_ns(self.commit_timestamp)

    @staticmethod
    def received(rows: Iterable[AckRow], read_rest: Callable[[bytes], AckRest]) -> list[Ack]:
        """Make many acks that say OK at once; for the codec.

        Args:
            rows: what is read already of each ack, and its bytes.
            read_rest: reads the rest from those bytes, when it is asked for. It must not fail.
        """
        acks: list[Ack] = []
        new = Ack.__new__  # as for messages
        for row in rows:
            ack = new(Ack)
            ack.stream, ack.offset, ack.correlation_id, ack._unread = row  # type: ignore[misc]  # noqa: SLF001 - the slot is inherited
            ack._read = read_rest  # noqa: SLF001 - same
            ack.ack_error = _OK
            acks.append(ack)
        return acks

    def __reduce__(self) -> tuple[type[Ack], tuple[object, ...]]:
        # As for messages.
        return type(self), tuple(getattr(self, one.name) for one in fields(self))

    if not TYPE_CHECKING:  # as for messages

        def __getattr__(self, name: str) -> object:
            if name in _READ_LATER and self._unread:
                rest = dict(zip(_READ_LATER, self._read(self._unread), strict=True))
                self._unread = b""
                for later, value in rest.items():
                    if not _is_set(self, later):
                        setattr(self, later, value)
            return object.__getattribute__(self, name)


def _is_set(value: object, field: str) -> bool:
    try:
        object.__getattribute__(value, field)
    except AttributeError:
        return False
    return True


_OK: Final = AckError.OK
_INT32_DIGITS: Final = 10
_READ_LATER: Final = (
    "partition_subject",
    "msg_subject",
    "ack_inbox",
    "ack_policy",
    "reception_timestamp",
    "commit_timestamp",
)
"""Fields of an ack from the wire that are decoded only on access."""

AckRow: TypeAlias = tuple[str, int, str, bytes]
"""Stream, offset and correlation id of an ack, and the bytes that the rest is read from."""
AckRest: TypeAlias = tuple[str, str, str, AckPolicy, int, int]
"""The other fields of an ack, but for its error."""


@dataclass(frozen=True, slots=True)
class Record:
    """One message to publish with `Client.publish_many`."""

    value: bytes
    key: bytes | None = None
    headers: Mapping[str, bytes] | None = None
    partition: int | None = None


@dataclass(slots=True)
class OutgoingMessage:
    """A message to publish, with the arguments of `Client.publish`; see there for their meaning.

    One is made by each publish. Interceptors may change its fields before they send it on.
    """

    stream: str
    value: bytes
    key: bytes | None = None
    headers: Mapping[str, bytes] | None = None
    """Read-only: to add one, assign a new mapping, because this one may be the publisher's."""
    partition: int | None = None
    """None where the partitioner or the key is to choose it."""
    partitioner: Partitioner | None = None
    ack_policy: AckPolicy = AckPolicy.LEADER
    ack_timeout: Duration | None = None
    expected_offset: int | None = None
    correlation_id: str | None = None
    """None where one is to be made."""
    retry: Retry | None = None
    timeout: Duration | None = None
    quiet: bool = False
    """True where whoever publishes it handles its failure: the hook and `Client.flush` do not."""
    own_headers: Mapping[str, bytes] | None = None
    """Headers that only this package writes, such as those of transactions: leave them as they are.
    In `headers` they are refused."""


class _SharedOptions(TypedDict, total=False):
    partitioner: Partitioner | None
    timeout: Duration | None


class _AckOptions(_SharedOptions, total=False):
    ack_timeout: Duration | None
    retry: Retry | None


class UnackedOptions(_SharedOptions, total=False):
    """Options of `Client.publish_unacked`; `Client.publish` explains them."""

    partition: int | None
    correlation_id: str | None


class ManyOptions(_AckOptions, total=False):
    """Options of `Client.publish_many`; `Client.publish` explains them."""

    ack_policy: Acked


class _OneOptions(UnackedOptions, _AckOptions, total=False):
    expected_offset: int | None


class AckedOptions(_OneOptions, total=False):
    """Options of `Client.publish`, which explains them."""

    ack_policy: Acked


class PublishOptions(_OneOptions, total=False):
    """Options of `Client.publish_async`; `Client.publish` explains them."""

    ack_policy: AckPolicy


class StartPosition(enum.IntEnum):
    """Kind of start position; the numbers are the wire's."""

    NEW_ONLY = 0
    OFFSET = 1
    EARLIEST = 2
    LATEST = 3
    TIMESTAMP = 4


@dataclass(frozen=True, slots=True)
class StartAt:
    """Start of a subscription. Make one with a class method, never by hand."""

    position: StartPosition
    value: int = 0
    """The offset (OFFSET) or the Unix nanoseconds (TIMESTAMP), else 0."""
    delta: timedelta | None = None
    """For `ago`: the instant is taken when the subscription starts, not when this is made."""

    @classmethod
    def new_only(cls) -> Self:
        """Only messages published after the subscription started."""
        return cls(StartPosition.NEW_ONLY)

    @classmethod
    def latest(cls) -> Self:
        """The newest stored message, then what follows."""
        return cls(StartPosition.LATEST)

    @classmethod
    def earliest(cls) -> Self:
        """The oldest message that is still stored, then what follows."""
        return cls(StartPosition.EARLIEST)

    @classmethod
    def offset(cls, offset: int) -> Self:
        """The first stored message whose offset is at least `offset`.

        Raises:
            InvalidRequest: the offset is negative, or larger than the wire can carry.
        """
        return cls(StartPosition.OFFSET, _checked_offset(offset))

    @classmethod
    def time(cls, moment: datetime | int) -> Self:
        """The first message with a timestamp at or after `moment`.

        Args:
            moment: an aware `datetime`, or Unix nanoseconds.

        Raises:
            InvalidRequest: the `datetime` is naive, or the time lies before 1970 or after 2262.
        """
        return cls(StartPosition.TIMESTAMP, _instant(moment))

    @classmethod
    def ago(cls, delta: timedelta) -> Self:
        """The first message not older than `delta`, counted back from the time of the subscribe.

        Raises:
            InvalidRequest: `delta` is negative.
        """
        check_type(delta, timedelta, "ago() takes a timedelta")
        if delta < timedelta(0):
            raise InvalidRequest(f"ago() takes a time span into the past, not {delta!r}")
        return cls(StartPosition.TIMESTAMP, delta=delta)


class StopPosition(enum.IntEnum):
    """Kind of stop position; the numbers are the wire's."""

    ON_CANCEL = 0
    OFFSET = 1
    LATEST = 2
    TIMESTAMP = 3


@dataclass(frozen=True, slots=True)
class StopAt:
    """End of a subscription. Make one with a class method, never by hand."""

    position: StopPosition
    value: int = 0
    """The offset (OFFSET) or the Unix nanoseconds (TIMESTAMP), else 0."""

    @classmethod
    def offset(cls, offset: int) -> Self:
        """Deliver up to and including `offset`; waits for it if it does not exist yet.

        Raises:
            InvalidRequest: the offset is negative, or larger than the wire can carry.
        """
        return cls(StopPosition.OFFSET, _checked_offset(offset))

    @classmethod
    def latest(cls) -> Self:
        """End at the newest message that was committed when the subscription started."""
        return cls(StopPosition.LATEST)

    @classmethod
    def time(cls, moment: datetime | int) -> Self:
        """End at the last message with a timestamp at or before `moment`, which must be past.

        Args:
            moment: an aware `datetime`, or Unix nanoseconds.

        Raises:
            InvalidRequest: the `datetime` is naive, or the time lies before 1970 or after 2262.
        """
        return cls(StopPosition.TIMESTAMP, _instant(moment))


def _checked_offset(offset: int) -> int:
    check_whole_number(offset, "an offset", 0, INT64_MAX)
    return offset


def _instant(moment: datetime | int) -> int:
    timestamp = ns_from_datetime(moment) if isinstance(moment, datetime) else moment
    if isinstance(timestamp, bool) or not isinstance(timestamp, int):
        raise WrongType(f"a time is an aware datetime or Unix nanoseconds, not {moment!r}")
    if not 0 <= timestamp <= INT64_MAX:
        raise InvalidRequest(
            f"a log holds times from 1970 to 2262, as Unix nanoseconds, not {moment!r}"
        )
    return timestamp


class StreamPartition(NamedTuple):
    """A partition of a stream; equal to, and sorted like, the plain tuple."""

    stream: str
    partition: int

    def __str__(self) -> str:
        """Return `stream/partition`."""
        return f"{self.stream}/{self.partition}"


class EndReason(enum.Enum):
    """The reason of an orderly end of a subscription."""

    STOP_REACHED = "stop reached"
    """The stop position was delivered, or the first stored message lies behind it already."""
    READONLY = "end of readonly partition"
    """The partition is read-only and everything in it was delivered."""
    EMPTY = "stream is empty"
    """A bounded read of a partition that holds nothing."""
    CLOSED = "closed"
    """The subscription or its client was closed here."""


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    """A server of the cluster."""

    id: str
    host: str
    port: int
    partition_count: int = 0
    leader_count: int = 0

    @property
    def address(self) -> str:
        """The advertised `host:port`."""
        return format_address(self.host, self.port)


@dataclass(frozen=True, slots=True)
class EventTimestamps:
    """First and latest time of an event in Unix nanoseconds; None where there was none."""

    first: int | None = None
    latest: int | None = None


@dataclass(frozen=True, slots=True)
class PartitionInfo(_Unread):
    """State of a partition. Offsets are exact only if the leader was asked."""

    id: int
    leader: str
    """Broker id; empty while there is no leader."""
    replicas: tuple[str, ...] = ()
    isr: tuple[str, ...] = ()
    high_watermark: int = -1
    """Offset of the newest committed message, -1 if there is none."""
    newest_offset: int = -1
    """Offset of the newest stored message, -1 if there is none."""
    paused: bool = False
    """In `Client.metadata`, v1.9.0 servers leave this True after a partition was resumed;
    `Client.fetch_partition_metadata` returns the right value."""
    readonly: bool = False
    messages_received: EventTimestamps = EventTimestamps()
    pause: EventTimestamps = EventTimestamps()
    readonly_changes: EventTimestamps = EventTimestamps()

    @staticmethod
    def received(
        id: int,  # noqa: A002 - the name of the field
        leader: str,
        unread: bytes,
        read_rest: Callable[[bytes], PartitionRest],
    ) -> PartitionInfo:
        """Make one whose other fields are decoded on access; for the codec.

        Args:
            id: the number of the partition.
            leader: the id of a broker.
            unread: the bytes that the other fields are decoded from.
            read_rest: decodes them. It must not fail.
        """
        info = PartitionInfo.__new__(PartitionInfo)
        for name, value in (
            ("id", id),
            ("leader", leader),
            ("_unread", unread),
            ("_read", read_rest),
        ):
            object.__setattr__(info, name, value)
        return info

    def __reduce__(self) -> tuple[type[PartitionInfo], tuple[object, ...]]:
        # As for messages.
        return type(self), tuple(getattr(self, one.name) for one in fields(self))

    if not TYPE_CHECKING:  # as for messages

        def __getattr__(self, name: str) -> object:
            if name in _AFTER_LEADER:
                rest = zip(_AFTER_LEADER, self._read(self._unread), strict=True)
                for later, value in (*rest, ("_unread", b"")):
                    object.__setattr__(self, later, value)
            return object.__getattribute__(self, name)


PartitionRest: TypeAlias = tuple[
    tuple[str, ...],
    tuple[str, ...],
    int,
    int,
    bool,
    bool,
    EventTimestamps,
    EventTimestamps,
    EventTimestamps,
]
"""The fields of a `PartitionInfo` after its leader."""
_AFTER_LEADER: Final = tuple(one.name for one in fields(PartitionInfo)[2:])
"""Their names: those of a partition from the wire are decoded only on access."""


@dataclass(frozen=True, slots=True)
class StreamInfo:
    """A stream and its partitions."""

    name: str
    subject: str
    partitions: Mapping[int, PartitionInfo]
    creation_timestamp: int = 0
    """Unix nanoseconds; another value means that the stream was deleted and created again."""

    @property
    def creation_time(self) -> datetime:
        """`creation_timestamp` as an aware `datetime` in UTC."""
        return datetime_from_ns(self.creation_timestamp)


@dataclass(frozen=True, slots=True)
class GroupInfo:
    """A consumer group in the metadata."""

    id: str
    coordinator: str
    """Broker id."""
    epoch: int


@dataclass(frozen=True, slots=True)
class Metadata:
    """An immutable snapshot of the metadata of the cluster."""

    last_updated: datetime | None = None
    """When the last answer of a server came; None before the first."""
    brokers: Mapping[str, BrokerInfo] = field(default_factory=lambda: MappingProxyType({}))
    streams: Mapping[str, StreamInfo] = field(default_factory=lambda: MappingProxyType({}))
    groups: Mapping[str, GroupInfo] = field(default_factory=lambda: MappingProxyType({}))

    def partition_count(self, stream: str) -> int | None:
        """Return the number of partitions of `stream`; None if the stream is not known."""
        info = self.streams.get(stream)
        return None if info is None else len(info.partitions)

    def partition(self, stream: str, partition: int) -> PartitionInfo | None:
        """Return the metadata of one partition; None if it is not known."""
        info = self.streams.get(stream)
        return None if info is None else info.partitions.get(partition)

    def leader(self, stream: str, partition: int) -> BrokerInfo | None:
        """Return the broker that leads a partition; None if it or its address is not known."""
        info = self.partition(stream, partition)
        return None if info is None else self.brokers.get(info.leader)


class Partitioner(Protocol):
    """Chooses the partition of a message. Called once per message, so it must be quick."""

    def __call__(
        self, stream: str, key: bytes | None, value: bytes, partition_count: int, /
    ) -> int:
        """Return a partition in `range(partition_count)`."""
        ...
