"""Publishes and reads a stream as values of one type."""

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

from liftbridge_aio._core.arguments import about, check_type
from liftbridge_aio._core.public_face import lists_options
from liftbridge_aio._subscribe.typed_reader import TypedReader
from liftbridge_aio.model import (
    Ack,
    AckedOptions,
    AckPolicy,
    ManyOptions,
    Message,
    PublishOptions,
    Record,
    StartAt,
    StopAt,
    UnackedOptions,
)
from liftbridge_aio.options import Duration, Unset
from liftbridge_aio.values import ValueCodec

if TYPE_CHECKING:
    from liftbridge_aio import transactions
    from liftbridge_aio._subscribe.merged_subscription import MergedSubscription
    from liftbridge_aio._subscribe.subscription import Subscription
    from liftbridge_aio.queue import Queue, QueueOptions, ValueDelivery
    from liftbridge_aio.transactions.reading import ReadCommitted

T = TypeVar("T")
ItemT_co = TypeVar("ItemT_co", covariant=True)
SourceT = TypeVar("SourceT", bound=AsyncIterable[Message])

_NEW_ONLY: Final = StartAt.new_only()


class SubscribeOptions(TypedDict, total=False):
    """Arguments of `Client.subscribe` that are passed on as they are."""

    resubscribe_timeout: Duration | Unset | None
    unpause: bool
    from_isr_replica: bool
    reverse: bool
    cursor: str | None
    cursor_interval: Duration
    positions: transactions.Producer | None
    committed: bool | ReadCommitted
    timeout: Duration | None


class QueueArguments(TypedDict, total=False):
    """Arguments of `Client.queue` that are passed on as they are."""

    group: str | None
    durable: str | None
    client_id: str | None
    ephemeral: bool
    options: QueueOptions | None


class MessageClient(Protocol):
    """The calls of the client that a typed stream uses."""

    async def publish(self, *arguments: Any, **options: Any) -> Ack:
        """Publish a message and wait for its ack."""
        ...

    async def publish_unacked(self, *arguments: Any, **options: Any) -> None:
        """Publish a message that no server acks."""
        ...

    async def publish_async(self, *arguments: Any, **options: Any) -> Future[Any]:
        """Publish a message and return the future of its ack."""
        ...

    async def publish_many(self, *arguments: Any, **options: Any) -> list[Ack]:
        """Publish many messages."""
        ...

    def subscribe(self, *arguments: Any, **options: Any) -> Any:
        """Read one partition or several."""
        ...

    def queue(self, *arguments: Any, **options: Any) -> Any:
        """Return a member of a queue."""
        ...


class TypedStream(Generic[T, ItemT_co]):
    """A stream of values of one type.

    Values are encoded and decoded on the event loop: compressing a megabyte takes some ten
    milliseconds, in which nothing else runs.

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

    # Publishing

    def record(
        self,
        value: T,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        partition: int | None = None,
    ) -> Record:
        """Encode a value as a record for `Client.publish_many`.

        Raises:
            InvalidRequest: the value cannot be encoded.
        """
        with about(self.stream, partition):
            data, headers = self._codec.encode(value, headers)
        return Record(data, key, headers, partition)

    @lists_options(AckedOptions, ack_policy=AckPolicy.LEADER)
    async def publish(
        self,
        value: T,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        **options: Unpack[AckedOptions],
    ) -> Ack:
        """Publish a value and wait for its ack.

        Options, errors and the effect of cancelling are those of `Client.publish`.

        Args:
            value: the value to publish.
            key: chooses the partition unless an option does; compaction keeps the last value of
                each key.
            headers: any names but `subject`, `reply` and `X-Msg-Encoding`, which is set here.
            options: see `Client.publish`.

        Raises:
            InvalidRequest: the value cannot be encoded; nothing was sent.
        """
        record = self.record(value, key, headers, options.get("partition"))
        return await self._client.publish(self.stream, record.value, key, record.headers, **options)

    @lists_options(UnackedOptions)
    async def publish_unacked(
        self,
        value: T,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        **options: Unpack[UnackedOptions],
    ) -> None:
        """Publish a value that no server acks, and return once it is written.

        Arguments are those of `publish`; options, errors and the effect of cancelling are those of
        `Client.publish_unacked`.
        """
        record = self.record(value, key, headers, options.get("partition"))
        await self._client.publish_unacked(
            self.stream, record.value, key, record.headers, **options
        )

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

    @lists_options(PublishOptions, ack_policy=AckPolicy.LEADER)
    async def publish_async(
        self,
        value: T,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        **options: Unpack[PublishOptions],
    ) -> Future[Any]:
        """Publish a value and return the future of its ack, once there is room in the window.

        Arguments and errors are those of `publish`; the effect of cancelling is that of
        `Client.publish_async`.
        """
        record = self.record(value, key, headers, options.get("partition"))
        return await self._client.publish_async(
            self.stream, record.value, key, record.headers, **options
        )

    @lists_options(ManyOptions, ack_policy=AckPolicy.LEADER)
    async def publish_many(
        self,
        values: Iterable[T],
        *,
        key: Callable[[T], bytes | None] | None = None,
        **options: Unpack[ManyOptions],
    ) -> list[Ack]:
        """Publish many values, in order, and wait for all their acks.

        All are encoded before the first is sent. Options, errors and the effect of cancelling are
        those of `Client.publish_many`, which also takes the results of `record`.

        Args:
            values: the values to publish.
            key: called for each value, returns its key.
            options: see `Client.publish_many`.

        Raises:
            InvalidRequest: one of the values cannot be encoded; nothing was sent.
            PublishManyFailed: not all were acked.
        """
        check_type(values, (Iterable,), "publish_many takes an iterable of values")
        records = [self.record(value, None if key is None else key(value)) for value in values]
        return await self._client.publish_many(self.stream, records, **options)

    # Reading

    @overload
    def subscribe(
        self,
        *,
        partition: int,
        start: StartAt = ...,
        stop: StopAt | None = ...,
        **options: Unpack[SubscribeOptions],
    ) -> TypedReader[ItemT_co, Subscription]: ...

    @overload
    def subscribe(
        self,
        *,
        partition: Collection[int] | None = ...,
        start: StartAt | Mapping[int, StartAt] = ...,
        stop: StopAt | None = ...,
        **options: Unpack[SubscribeOptions],
    ) -> TypedReader[ItemT_co, MergedSubscription]: ...

    def subscribe(
        self,
        *,
        partition: int | Collection[int] | None = None,
        start: StartAt | Mapping[int, StartAt] = _NEW_ONLY,
        stop: StopAt | None = None,
        **options: Unpack[SubscribeOptions],
    ) -> TypedReader[ItemT_co, Subscription] | TypedReader[ItemT_co, MergedSubscription]:
        """Read one partition or several: return an async iterator over values.

        Arguments and errors are those of `Client.subscribe`; the `source` of the result is the
        subscription. With a cursor, a message whose value raised is finished when the one after it
        is requested.
        """
        source = self._client.subscribe(
            self.stream, partition=partition, start=start, stop=stop, **options
        )
        return self.read(source)

    def queue(self, **arguments: Unpack[QueueArguments]) -> Queue[ValueDelivery[T]]:
        """Return a member of a queue whose deliveries have decoded values.

        Arguments and errors are those of `Client.queue`. A message whose value cannot be decoded is
        given up, whatever `on_undecodable` is; see `ValueDelivery`.
        """
        queue: Queue[Any] = self._client.queue(self.stream, **arguments)
        return queue.with_values(self._codec.decode)

    def read(self, source: SourceT) -> TypedReader[ItemT_co, SourceT]:
        """Read the values of the messages of any source, such as a consumer group.

        Args:
            source: an async iterable of messages. Entering the result enters it, so only iterate if
                it was entered already.
        """
        check_type(source, (AsyncIterable,), "values are read from an async iterable of messages")
        return TypedReader(source, self._convert)

    def decode(self, message: Message) -> T:
        """Decode the value of one message, whatever `on_undecodable` is.

        Raises:
            UndecodableMessage: it cannot be decoded.
        """
        return self._codec.decode(message)
