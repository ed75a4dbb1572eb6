"""A stream as what it holds: values of one type, published and read as such."""

from __future__ import annotations

from asyncio import Future
from collections.abc import AsyncIterable, Callable, Collection, Iterable, Mapping
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Generic,
    Protocol,
    TypedDict,
    TypeVar,
    Unpack,
    overload,
)

from .arguments import about, check_type
from .model import (
    Ack,
    Acked,
    AckPolicy,
    AllPartitions,
    Message,
    Partitioner,
    Record,
    StartAt,
    StopAt,
)
from .options import Duration, Unset
from .retry import Retry
from .typed_reading import TypedReading
from .values import ValueCodec

if TYPE_CHECKING:
    from .merged_subscription import MergedSubscription
    from .subscription import Subscription

T = TypeVar("T")
ItemT_co = TypeVar("ItemT_co", covariant=True)
SourceT = TypeVar("SourceT", bound=AsyncIterable[Message])

_NEW_ONLY: Final = StartAt.new_only()


class _ManyOptions(TypedDict, total=False):
    partitioner: Partitioner | None
    ack_timeout: Duration | None
    retry: Retry | None
    timeout: Duration | None


class PublishManyOptions(_ManyOptions, total=False):
    """Arguments of `Client.publish_many` that are passed on as they are."""

    ack_policy: AckPolicy


class AckedManyOptions(_ManyOptions, total=False):
    """The same where each message is acked."""

    ack_policy: Acked


class _OneOptions(_ManyOptions, total=False):
    partition: int | None
    expected_offset: int | None
    correlation_id: str | None


class PublishOptions(_OneOptions, total=False):
    """Arguments of `Client.publish` that are passed on as they are."""

    ack_policy: AckPolicy


class AckedOptions(_OneOptions, total=False):
    """The same where the message is acked."""

    ack_policy: Acked


class SubscribeOptions(TypedDict, total=False):
    """Arguments of `Client.subscribe` that are passed on as they are."""

    resubscribe_timeout: Duration | Unset | None
    resume: bool
    from_isr_replica: bool
    reverse: bool
    cursor: str | None
    cursor_interval: Duration
    timeout: Duration | None


class MessageClient(Protocol):
    """What a typed stream asks of the client; the arguments are the client's."""

    async def publish(self, *arguments: Any, **options: Any) -> Any:
        """Publish a message and wait for its ack."""
        ...

    async def publish_async(self, *arguments: Any, **options: Any) -> Future[Any]:
        """Publish a message and return the future of its ack."""
        ...

    async def publish_many(self, *arguments: Any, **options: Any) -> list[Any]:
        """Publish many messages."""
        ...

    def subscribe(self, *arguments: Any, **options: Any) -> Any:
        """Read one partition or several."""
        ...


class TypedStream(Generic[T, ItemT_co]):
    """A stream that holds values of one type.

    Values are written and read on the event loop: compressing a megabyte takes some ten
    milliseconds in which nothing else runs.

    Make one with `Client.values`; it needs no closing.
    """

    def __init__(
        self,
        client: MessageClient,
        stream: str,
        codec: ValueCodec[T],
        convert: Callable[[Message], ItemT_co | None],
    ) -> None:
        self.stream = stream
        self._client = client
        self._codec = codec
        self._convert = convert

    def __repr__(self) -> str:
        return f"<TypedStream {self.stream} {self._codec!r}>"

    # Writing

    def record(
        self,
        value: T,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        partition: int | None = None,
    ) -> Record:
        """Return a value as a record, which `Client.publish_many` takes.

        Raises:
            InvalidRequest: the value cannot be written.
        """
        with about(self.stream, partition):
            data, headers = self._codec.encode(value, headers)
        return Record(data, key, headers, partition)

    @overload
    async def publish(
        self,
        value: T,
        key: bytes | None = ...,
        headers: Mapping[str, bytes] | None = ...,
        **options: Unpack[AckedOptions],
    ) -> Ack: ...

    @overload
    async def publish(
        self,
        value: T,
        key: bytes | None = ...,
        headers: Mapping[str, bytes] | None = ...,
        **options: Unpack[PublishOptions],
    ) -> Ack | None: ...

    async def publish(
        self,
        value: T,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        **options: Unpack[PublishOptions],
    ) -> Ack | None:
        """Publish a value and wait for its ack.

        Options, errors and what cancelling does are those of `Client.publish`.

        Args:
            value: what to publish.
            key: decides the partition if nothing else does, and what compaction keeps.
            headers: anything but `subject` and `reply`, and `X-Msg-Encoding`, which is written
                here.
            options: the rest.

        Raises:
            InvalidRequest: the value cannot be written; nothing was sent.
        """
        with about(self.stream, options.get("partition")):
            data, headers = self._codec.encode(value, headers)
        ack: Ack | None = await self._client.publish(self.stream, data, key, headers, **options)
        return ack

    @overload
    async def publish_async(
        self,
        value: T,
        key: bytes | None = ...,
        headers: Mapping[str, bytes] | None = ...,
        **options: Unpack[AckedOptions],
    ) -> Future[Ack]: ...

    @overload
    async def publish_async(
        self,
        value: T,
        key: bytes | None = ...,
        headers: Mapping[str, bytes] | None = ...,
        **options: Unpack[PublishOptions],
    ) -> Future[Ack | None]: ...

    async def publish_async(
        self,
        value: T,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        **options: Unpack[PublishOptions],
    ) -> Future[Any]:
        """Publish a value and return the future of its ack, once there is room in the window.

        Arguments and errors are those of `publish`; what cancelling does, those of
        `Client.publish_async`.
        """
        with about(self.stream, options.get("partition")):
            data, headers = self._codec.encode(value, headers)
        return await self._client.publish_async(self.stream, data, key, headers, **options)

    @overload
    async def publish_many(
        self,
        values: Iterable[T],
        *,
        key: Callable[[T], bytes | None] | None = ...,
        **options: Unpack[AckedManyOptions],
    ) -> list[Ack]: ...

    @overload
    async def publish_many(
        self,
        values: Iterable[T],
        *,
        key: Callable[[T], bytes | None] | None = ...,
        **options: Unpack[PublishManyOptions],
    ) -> list[Ack | None]: ...

    async def publish_many(
        self,
        values: Iterable[T],
        *,
        key: Callable[[T], bytes | None] | None = None,
        **options: Unpack[PublishManyOptions],
    ) -> list[Any]:
        """Publish many values, in order, and wait for all their acks.

        All are written before the first is sent. Options, errors and what cancelling does are
        those of `Client.publish_many`, which also takes what `record` makes.

        Args:
            values: what to publish.
            key: gives each value its key.
            options: the rest.

        Raises:
            InvalidRequest: one of the values cannot be written; nothing was sent.
            PublishManyFailed: not all were acked.
        """
        check_type(values, (Iterable,), "publish_many takes an iterable of values")
        records = [self.record(value, None if key is None else key(value)) for value in values]
        return await self._client.publish_many(self.stream, records, **options)

    # Reading

    @overload
    def subscribe(
        self,
        partition: int = ...,
        start: StartAt = ...,
        stop: StopAt | None = ...,
        **options: Unpack[SubscribeOptions],
    ) -> TypedReading[ItemT_co, Subscription]: ...

    @overload
    def subscribe(
        self,
        partition: AllPartitions | Collection[int],
        start: StartAt | Mapping[int, StartAt] = ...,
        stop: StopAt | None = ...,
        **options: Unpack[SubscribeOptions],
    ) -> TypedReading[ItemT_co, MergedSubscription]: ...

    def subscribe(
        self,
        partition: int | AllPartitions | Collection[int] = 0,
        start: StartAt | Mapping[int, StartAt] = _NEW_ONLY,
        stop: StopAt | None = None,
        **options: Unpack[SubscribeOptions],
    ) -> TypedReading[ItemT_co, Subscription] | TypedReading[ItemT_co, MergedSubscription]:
        """Read one partition or several: iterate over what this returns.

        Arguments and errors are those of `Client.subscribe`; `source` of what this returns is the
        subscription. Where a cursor is kept, a message that raises is finished when the one after
        it is asked for.
        """
        return self.read(self._client.subscribe(self.stream, partition, start, stop, **options))

    def read(self, source: SourceT) -> TypedReading[ItemT_co, SourceT]:
        """Read the values of messages that come from anywhere: a subscription, a group, a list.

        Args:
            source: an async iterable of messages. Entering what this returns enters it, so iterate
                only where it was entered already.
        """
        check_type(source, (AsyncIterable,), "values are read from an async iterable of messages")
        return TypedReading(source, self._convert)

    def decode(self, message: Message) -> T:
        """Read the value of one message, whatever is done with those that cannot be read.

        Raises:
            UndecodableMessage: it cannot be read.
        """
        return self._codec.decode(message)
