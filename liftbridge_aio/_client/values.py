"""The calls of the client that publish and read typed values, and read events."""

from __future__ import annotations

from inspect import getattr_static
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, overload

from liftbridge_aio._core.arguments import INT64_MAX, check_text, check_type, check_whole_number
from liftbridge_aio.errors import InvalidRequest, WrongType
from liftbridge_aio.model import ACTIVITY_STREAM, StartAt, StopAt
from liftbridge_aio.options import UNSET, Duration, Unset
from liftbridge_aio.serializers import BYTES, Serializer
from liftbridge_aio.telemetry import MessageSkipped
from liftbridge_aio.values import (
    DEFAULT_MAX_DECOMPRESSED_BYTES,
    Decoded,
    Undecodable,
    Undecoded,
    ValueCodec,
    value_reader,
)

from .publishing import ClientPublishing
from .queues import ClientQueues
from .reading import ClientReading

if TYPE_CHECKING:
    from liftbridge_aio.compression import Compression

    from .activity import ActivityReading
    from .typed_stream import TypedStream

T = TypeVar("T")

_NEW_ONLY: Final = StartAt.new_only()


class ClientValues(ClientQueues, ClientPublishing, ClientReading):
    """Calls for typed streams, and for the activity stream."""

    @overload
    def values(
        self,
        stream: str,
        *,
        compression: Compression | None = ...,
        on_undecodable: Literal[Undecodable.RAISE, Undecodable.SKIP] = ...,
        max_decompressed_bytes: int = ...,
    ) -> TypedStream[bytes, Decoded[bytes]]: ...

    @overload
    def values(
        self,
        stream: str,
        *,
        compression: Compression | None = ...,
        on_undecodable: Undecodable,
        max_decompressed_bytes: int = ...,
    ) -> TypedStream[bytes, Decoded[bytes] | Undecoded]: ...

    @overload
    def values(
        self,
        stream: str,
        serializer: Serializer[T],
        *,
        compression: Compression | None = ...,
        on_undecodable: Literal[Undecodable.RAISE, Undecodable.SKIP] = ...,
        max_decompressed_bytes: int = ...,
    ) -> TypedStream[T, Decoded[T]]: ...

    @overload
    def values(
        self,
        stream: str,
        serializer: Serializer[T],
        *,
        compression: Compression | None = ...,
        on_undecodable: Undecodable,
        max_decompressed_bytes: int = ...,
    ) -> TypedStream[T, Decoded[T] | Undecoded]: ...

    def values(
        self,
        stream: str,
        serializer: Serializer[Any] = BYTES,
        *,
        compression: Compression | None = None,
        on_undecodable: Undecodable = Undecodable.RAISE,
        max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
    ) -> TypedStream[Any, Any]:
        """Return a stream to publish and read as typed values instead of bytes.

        Nothing is sent; the client need not be connected yet.

        Args:
            stream: the name of the stream.
            serializer: encodes values: `BYTES`, `JSON`, `PydanticSerializer(Model)`,
                `MsgspecSerializer(Struct)` or one of your own.
            compression: `Gzip()`, `Zstd()` or `Zlib()` compresses published values, and names the
                encoding in the header `X-Msg-Encoding`; None: no compression. Messages with that
                header are always decompressed when they are read.
            on_undecodable: what to do with messages whose value cannot be decoded: raise the error,
                skip them, or deliver them as `Undecoded`. Reading can continue in each case.
            max_decompressed_bytes: messages that decompress to more cannot be decoded.

        Raises:
            InvalidRequest: an argument is invalid.
        """
        from .typed_stream import TypedStream  # noqa: PLC0415 - only for those who use it

        _check_stream(stream)
        _check_methods(serializer, "serializer", "JSON", "serialize", "deserialize")
        if compression is not None:
            _check_methods(compression, "compression", "Gzip()", "compress", "decompress")
        check_type(on_undecodable, Undecodable, "on_undecodable is one of Undecodable")
        check_whole_number(max_decompressed_bytes, "max_decompressed_bytes", 1, INT64_MAX - 1)
        codec = ValueCodec(serializer, compression, max_decompressed_bytes)
        return TypedStream(self, stream, codec, value_reader(codec, on_undecodable, self._skipped))

    def _skipped(self, event: MessageSkipped) -> None:
        parts = self._parts
        if parts is not None:
            parts.network.reporter.message_skipped(event)

    def activity(
        self,
        *,
        start: StartAt = _NEW_ONLY,
        stop: StopAt | None = None,
        after_id: int = 0,
        resubscribe_timeout: Duration | Unset | None = UNSET,
        timeout: Duration | None = None,
    ) -> ActivityReading:
        """Read the events of streams and consumer groups: return an async iterator over them.

        Each event is delivered once, though servers may write it more than once. The creation of a
        group shows as the first member's `JoinGroupEvent`. Events that this client does not know
        are delivered as `UnknownEvent`. Nothing is sent before it is entered or iterated.

        Args:
            start: where to begin; by default, with events from now on.
            stop: where to end; None: never.
            after_id: the id of the last known event: only later ones are delivered.
            resubscribe_timeout: as for `subscribe`.
            timeout: seconds until the server has accepted; None is the client's call_timeout.

        Raises:
            InvalidRequest: an argument is invalid, or arguments contradict each other.
            ClientClosed: not connected.
        """
        from .activity import ActivityReading  # noqa: PLC0415 - imports the wire

        check_whole_number(after_id, "the id of an event", 0, 2 * INT64_MAX + 1)
        subscription = self.subscribe(
            ACTIVITY_STREAM,
            partition=0,
            start=start,
            stop=stop,
            resubscribe_timeout=resubscribe_timeout,
            timeout=timeout,
        )
        return ActivityReading(subscription, after_id)


def _check_stream(stream: str) -> None:
    check_text(stream, "a stream name")
    if not stream:
        raise InvalidRequest("a stream name must not be empty")


def _check_methods(value: object, name: str, example: str, *methods: str) -> None:
    """Refuse a value without these methods. Those of a class count only if they need no instance.

    Raises:
        WrongType: it has not all of them.
    """
    found = [getattr(value, method, None) for method in methods]
    if isinstance(value, type):
        own = (getattr_static(value, method, None) for method in methods)
        found = [one if isinstance(one, staticmethod | classmethod) else None for one in own]
    if not all(map(callable, found)):
        raise WrongType(
            f"{name} needs the methods {' and '.join(methods)}, as {example} has; {value!r} has not"
        )
