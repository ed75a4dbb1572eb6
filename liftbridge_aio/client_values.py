"""The client's calls for those who think in values and events rather than in bytes."""

from __future__ import annotations

from inspect import getattr_static
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, overload

from .arguments import INT64_MAX, check_text, check_type, check_whole_number
from .client_publishing import ClientPublishing
from .client_reading import ClientReading
from .errors import InvalidRequest, WrongType
from .model import ACTIVITY_STREAM, StartAt, StopAt
from .options import UNSET, Duration, Unset
from .serializers import BYTES, Serializer
from .telemetry import MessageSkipped
from .values import (
    DEFAULT_MAX_DECOMPRESSED_BYTES,
    Decoded,
    Undecodable,
    Undecoded,
    ValueCodec,
    value_reader,
)

if TYPE_CHECKING:
    from .activity import ActivityReading
    from .compression import Compression
    from .typed_stream import TypedStream

T = TypeVar("T")

_NEW_ONLY: Final = StartAt.new_only()


class ClientValues(ClientPublishing, ClientReading):
    """Streams of values of one type, and the activity stream."""

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
        """Publish to a stream and read it in values instead of bytes.

        Nothing is sent; the client need not be connected yet.

        Args:
            stream: the stream that holds the values.
            serializer: what they are on the log: `BYTES`, `JSON`, `PydanticSerializer(Model)`,
                `MsgspecSerializer(Struct)` or one of your own.
            compression: `Gzip()`, `Zstd()` or `Zlib()` compresses what is published, and says so
                in the header `X-Msg-Encoding`; None: not. Whatever says that it is compressed is
                decompressed when it is read, however this is set.
            on_undecodable: what becomes of messages whose value cannot be read: the error is
                raised, they are skipped, or they are handed over as `Undecoded`. The reading can
                go on in each case.
            max_decompressed_bytes: a message that decompresses to more cannot be read.

        Raises:
            InvalidRequest: an argument makes no sense.
        """
        from .typed_stream import TypedStream  # noqa: PLC0415 - only for those who use it

        _check_stream(stream)
        _check_face(serializer, "serializer", "JSON", "serialize", "deserialize")
        if compression is not None:
            _check_face(compression, "compression", "Gzip()", "compress", "decompress")
        check_type(on_undecodable, Undecodable, "on_undecodable is one of Undecodable")
        check_whole_number(max_decompressed_bytes, "max_decompressed_bytes", 1, INT64_MAX - 1)
        codec = ValueCodec(serializer, compression, max_decompressed_bytes)
        return TypedStream(self, stream, codec, value_reader(codec, on_undecodable, self._skipped))

    def _skipped(self, event: MessageSkipped) -> None:
        parts = self._parts
        if parts is not None:
            parts.connection.reporter.message_skipped(event)

    def activity(
        self,
        start: StartAt = _NEW_ONLY,
        stop: StopAt | None = None,
        *,
        after_id: int = 0,
        resubscribe_timeout: Duration | Unset | None = UNSET,
        timeout: Duration | None = None,
    ) -> ActivityReading:
        """Read what happens to streams and consumer groups, as typed events.

        Each event comes once, though servers may tell of it more than once. The creation of a
        group shows as the first member's `JoinGroupEvent`. What this client cannot read comes as
        `UnknownEvent`. Nothing happens before what this returns is entered or iterated over.

        Args:
            start: where to begin; unless told otherwise, with what happens from now on.
            stop: where to end; None goes on for ever.
            after_id: the id of the last event that is known already: up to there none is handed
                over.
            resubscribe_timeout: as for `subscribe`.
            timeout: seconds for the first handshake; None is the client's call_timeout.

        Raises:
            InvalidRequest: the arguments make no sense.
            ClientClosed: not connected.
        """
        from .activity import ActivityReading  # noqa: PLC0415 - imports the wire

        check_whole_number(after_id, "the id of an event", 0, 2 * INT64_MAX + 1)
        subscription = self.subscribe(
            ACTIVITY_STREAM,
            0,
            start,
            stop,
            resubscribe_timeout=resubscribe_timeout,
            timeout=timeout,
        )
        return ActivityReading(subscription, after_id)


def _check_stream(stream: str) -> None:
    check_text(stream, "a stream name")
    if not stream:
        raise InvalidRequest("a stream name must not be empty")


def _check_face(value: object, name: str, example: str, *methods: str) -> None:
    """Refuse what has not these methods; most that a class has are for its instances only.

    Raises:
        WrongType: it has not.
    """
    found = [getattr(value, method, None) for method in methods]
    if isinstance(value, type):
        own = (getattr_static(value, method, None) for method in methods)
        found = [one if isinstance(one, staticmethod | classmethod) else None for one in own]
    if not all(map(callable, found)):
        text = f"{name} has {' and '.join(methods)}, as {example} has, and {value!r} has not"
        raise WrongType(text)
