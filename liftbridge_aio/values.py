"""Messages as values of one type: written, read, and what becomes of those that cannot be read."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

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
"""Sixteen times what servers take as a message unless told otherwise."""

_MOST_TEXT: Final = 200  # characters of somebody else's error in ours


class Undecodable(enum.Enum):
    """What becomes of a message whose value cannot be read."""

    RAISE = "raise"
    """`UndecodableMessage` is raised in its place; the next step goes on after it."""
    SKIP = "skip"
    """It is left out; a hook's `message_skipped` is told, and the reading counts it."""
    RAW = "raw"
    """It is handed over as `Undecoded`, with the error."""


@dataclass(slots=True)
class Decoded(Generic[T]):
    """A value, and the message that it came in. Treat it as read-only, as `Message`."""

    value: T
    message: Message
    """As it is on the log: its own value is what the serialiser and the compression made."""


@dataclass(frozen=True, slots=True)
class Undecoded:
    """A message whose value cannot be read, and why."""

    message: Message
    error: UndecodableMessage


class ValueCodec(Generic[T]):
    """Writes values into messages and reads them out again. Pure.

    Args:
        serializer: turns a value into bytes and back.
        compression: how to compress these bytes, None: not at all. What is read need not have been
            compressed this way.
        max_decompressed_bytes: more than this is not decompressed.
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
            InvalidRequest: the value cannot be written, or a header has the name of ours.
            MessageTooLarge: compressed it would be more than its readers decompress.
        """
        if headers is not None and ENCODING_HEADER in headers:
            text = f"the header {ENCODING_HEADER!r} says how a value is compressed; leave it out"
            raise InvalidRequest(text)
        data = self._serialize(value)
        compression = self._compression
        if compression is None or len(data) < compression.min_bytes:
            return data, headers
        if len(data) > self._max_decompressed_bytes:
            text = (
                f"a value of {len(data)} bytes exceeds max_decompressed_bytes"
                f" ({self._max_decompressed_bytes}): readers would refuse it"
            )
            raise MessageTooLarge(text)
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
        except Exception as error:
            text = f"{self._serializer!r} cannot write this {type(value).__name__}: {_short(error)}"
            raise InvalidRequest(text) from error
        if type(data) is not bytes:
            text = f"{self._serializer!r} must write bytes, not {type(data).__name__}"
            raise WrongType(text)
        return data

    def decode(self, message: Message) -> T:
        """Read the value of a message.

        Raises:
            UndecodableMessage: that is not possible; the cause says why.
        """
        try:
            return self._serializer.deserialize(self._decompressed(message))
        except Exception as error:
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
            text = f"nothing here reads the encoding {encoding[:_MOST_TEXT]!r}"
            raise MalformedData(text)
        return decompress(message.value, self._max_decompressed_bytes)


def _short(error: Exception) -> str:
    lines = str(error).splitlines()
    text = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
    return text if len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]}…"


def value_reader(
    codec: ValueCodec[T], on_undecodable: Undecodable, skipped: Callable[[MessageSkipped], None]
) -> Callable[[Message], Decoded[T] | Undecoded | None]:
    """Return what makes values of messages, with a policy for those where that is impossible.

    Args:
        codec: reads the values.
        on_undecodable: the policy. With RAISE and SKIP no `Undecoded` is returned, and None, for a
            message to leave out, only with SKIP.
        skipped: told of each message that is left out.
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
