"""Encodes and decodes typed values, and handles messages that cannot be decoded."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from liftbridge_aio._core.foreign_cancellation import CALLBACK_ERRORS

from .compression import DECOMPRESSORS, ENCODING_HEADER, Compression
from .errors import (
    InvalidRequest,
    LiftbridgeError,
    MalformedData,
    MessageTooLarge,
    UndecodableMessage,
    WrongType,
)
from .model import Message
from .serializers import Serializer
from .telemetry import MessageSkipped

T = TypeVar("T")

DEFAULT_MAX_DECOMPRESSED_BYTES: Final = 16 * 2**20
"""Sixteen times the default maximum size of a message on servers."""

_MOST_TEXT: Final = 200  # characters of somebody else's error in ours


class Undecodable(enum.Enum):
    """Policy for a message whose value cannot be decoded."""

    RAISE = "raise"
    """Raise `UndecodableMessage` in its place; the next step continues after it."""
    SKIP = "skip"
    """Skip it, call the hook's `message_skipped`, and count it in `left_out`."""
    RAW = "raw"
    """Deliver it as `Undecoded`, with the error."""


@dataclass(slots=True)
class Decoded(Generic[T]):
    """A value, and the message that it came in. Treat it as read-only, as `Message`."""

    value: T
    message: Message
    """The message on the log; its `value` is the encoded form."""


@dataclass(frozen=True, slots=True)
class Undecoded:
    """A message whose value cannot be decoded, with the error."""

    message: Message
    error: UndecodableMessage


class ValueCodec(Generic[T]):
    """Encodes values for messages and decodes them. Pure.

    Args:
        serializer: turns a value into bytes and back.
        compression: how to compress these bytes; None: no compression. Messages compressed in other
            ways are decoded too.
        max_decompressed_bytes: messages that decompress to more are refused.
    """

    def __init__(
        self,
        serializer: Serializer[T],
        compression: Compression | None,
        max_decompressed_bytes: int,
    ) -> None:
        self._serializer = serializer
        self._compression = compression
        self._max_decompressed_bytes = max_decompressed_bytes
        self._decompressors = {
            name.encode(): decompress for name, decompress in DECOMPRESSORS.items()
        }
        if compression is not None:
            self._decompressors[compression.encoding.encode()] = compression.decompress

    def __repr__(self) -> str:
        return f"{self._serializer!r} {self._compression!r}"

    def encode(
        self, value: T, headers: Mapping[str, bytes] | None
    ) -> tuple[bytes, Mapping[str, bytes] | None]:
        """Return the bytes of a value and the headers to send with them.

        Raises:
            InvalidRequest: the value cannot be encoded, or a header has the reserved name.
            MessageTooLarge: readers would refuse to decompress it.
        """
        if headers is not None and ENCODING_HEADER in headers:
            raise InvalidRequest(
                f"the header {ENCODING_HEADER!r} says how a value is compressed; leave it out"
            )
        data = self._serialize(value)
        compression = self._compression
        if compression is None or len(data) < compression.min_bytes:
            return data, headers
        if len(data) > self._max_decompressed_bytes:
            raise MessageTooLarge(
                f"a value of {len(data)} bytes exceeds max_decompressed_bytes"
                f" ({self._max_decompressed_bytes}): readers would refuse it"
            )
        compressed = compression.compress(data)
        if len(compressed) >= len(data):
            return data, headers
        encoding = {ENCODING_HEADER: compression.encoding.encode()}
        return compressed, encoding if headers is None else {**headers, **encoding}

    def _serialize(self, value: T) -> bytes:
        try:
            data = self._serializer.serialize(value)
        except LiftbridgeError:
            raise
        except CALLBACK_ERRORS as error:
            raise InvalidRequest(
                f"{self._serializer!r} cannot write this {type(value).__name__}: {_short(error)}"
            ) from error
        if type(data) is not bytes:
            raise WrongType(f"{self._serializer!r} must write bytes, not {type(data).__name__}")
        return data

    def decode(self, message: Message) -> T:
        """Decode the value of a message.

        Raises:
            UndecodableMessage: it cannot be decoded; see the cause.
        """
        try:
            return self._serializer.deserialize(self._decompressed(message))
        except CALLBACK_ERRORS as error:
            text = f"the value cannot be read by {self._serializer!r}: {_short(error)}"
            undecodable = UndecodableMessage(
                text, stream=message.stream, partition=message.partition, offset=message.offset
            )
            undecodable.received = message
            raise undecodable from error

    def _decompressed(self, message: Message) -> bytes:
        encoding = message.headers.get(ENCODING_HEADER)
        if encoding is None:
            return message.value
        decompress = self._decompressors.get(encoding)
        if decompress is None:
            raise MalformedData(f"unknown encoding {encoding[:_MOST_TEXT]!r}")
        return decompress(message.value, self._max_decompressed_bytes)


def _short(error: BaseException) -> str:
    lines = str(error).splitlines()
    text = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
    return text if len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]}…"


def value_reader(
    codec: ValueCodec[T], on_undecodable: Undecodable, skipped: Callable[[MessageSkipped], None]
) -> Callable[[Message], Decoded[T] | Undecoded | None]:
    """Return a function that decodes messages, with a policy for undecodable ones.

    Args:
        codec: decodes the values.
        on_undecodable: the policy. The function returns `Undecoded` only with RAW, and None, for a
            message to skip, only with SKIP.
        skipped: called for each skipped message.
    """

    def read(message: Message) -> Decoded[T] | Undecoded | None:
        try:
            return Decoded(codec.decode(message), message)
        except UndecodableMessage as error:
            if on_undecodable is Undecodable.RAISE:
                raise
            if on_undecodable is Undecodable.RAW:
                return Undecoded(message, error)
            skipped(MessageSkipped(message.stream, message.partition, message.offset, error))
            return None

    return read
