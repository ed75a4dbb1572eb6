"""Cut a stream of bytes into frames, one for each message, in the ways of Gazette.

A framing is chosen by the content type of a journal: `framing_for`. It encodes messages, and its
decoders take the bytes of a journal in any pieces and give back frames. Frames are whole: their
lengths add up to the offsets of the journal. `register_framing` adds framings of one's own.
"""

from __future__ import annotations

import csv
import io
import struct
from typing import Any, Final, Protocol

from liftbridge_aio._core.arguments import check_text
from liftbridge_aio.errors import InvalidRequest
from liftbridge_aio.transactions.errors import (
    Desynchronised,
    FramingError,
    TruncatedFrame,
    UnknownFraming,
)

JSON_LINES: Final = "application/x-ndjson"
CSV: Final = "text/csv"
FIXED_PROTOBUF: Final = "application/x-protobuf-fixed"

FIXED_WORD: Final = b"\x66\x33\x93\x36"
"""The beginning of each frame of `application/x-protobuf-fixed`."""
FIXED_HEADER_BYTES: Final = 8
MAX_FRAME_BYTES: Final = 64 << 20
"""Bytes of the largest frame that a decoder accepts, unless told otherwise."""

_LENGTH: Final = struct.Struct("<I")


class JsonFrameable(Protocol):
    """The attributes of a message that the JSON framing uses."""

    def marshal_json(self) -> bytes:
        """Return the message as JSON without line feeds."""

    def unmarshal_json(self, data: bytes) -> None:
        """Take the fields from JSON."""


class CsvFrameable(Protocol):
    """The attributes of a message that the CSV framing uses."""

    def marshal_csv(self) -> list[str]:
        """Return the fields of the message."""

    def unmarshal_csv(self, fields: list[str]) -> None:
        """Take the fields."""


class ProtoFrameable(Protocol):
    """The methods of a message that the protobuf framing uses: those of `protobuf`."""

    def SerializeToString(self) -> bytes:  # noqa: N802 - protobuf's name
        """Return the encoded message."""

    def ParseFromString(self, data: bytes, /) -> object:  # noqa: N802 - protobuf's name
        """Take the fields from an encoded message."""


class Decoder(Protocol):
    """Cuts the bytes of one journal into frames, and frames into messages."""

    def feed(self, data: bytes) -> None:
        """Take further bytes; none means that the journal has ended."""

    def next_frame(self) -> bytes | None:
        """Return the next frame; None if more bytes are needed, or after the end.

        Raises:
            Desynchronised: other bytes came first; they are skipped, and the next call goes on.
            TruncatedFrame: the journal has ended within a frame.
            FramingError: the frame is too long.
        """

    def decode(self, frame: bytes, message: Any) -> None:
        """Have a message take its fields from a frame.

        Raises:
            FramingError: the frame is malformed.
        """


class Framing(Protocol):
    """The encoding of the messages of a journal."""

    @property
    def content_type(self) -> str:
        """The content type of its journals."""

    def encode(self, message: Any) -> bytes:
        """Return the frame of a message."""

    def decoder(self, max_frame_bytes: int = MAX_FRAME_BYTES) -> Decoder:
        """Return a decoder for the bytes of one journal."""


_FRAMINGS: dict[str, Framing] = {}


def register_framing(framing: Framing) -> None:
    """Use a framing for the journals of its content type, in place of any other."""
    _FRAMINGS[framing.content_type] = framing


def framing_for(content_type: str) -> Framing:
    """Return the framing of a content type.

    Raises:
        UnknownFraming: none is registered.
    """
    framing = _FRAMINGS.get(content_type)
    if framing is None:
        raise UnknownFraming(f"no framing is registered for the content type {content_type!r}")
    return framing


class _Bytes:
    """The bytes that are not cut into frames yet."""

    def __init__(self, max_frame_bytes: int) -> None:
        self.held = bytearray()
        self.ended = False
        self.max_frame_bytes = max_frame_bytes

    def feed(self, data: bytes) -> None:
        """Take further bytes; none means the end.

        Raises:
            InvalidRequest: the end has been told before.
        """
        if self.ended:
            raise InvalidRequest("the decoder was told before that its bytes have ended")
        self.held += data
        self.ended = not data

    def take(self, size: int) -> bytes:
        taken = bytes(self.held[:size])
        del self.held[:size]
        return taken

    def check_length(self, size: int) -> None:
        if size > self.max_frame_bytes:
            raise FramingError(
                f"a frame has {size:,} bytes or more; the limit is {self.max_frame_bytes:,}"
            )


class _FixedDecoder(_Bytes):
    def next_frame(self) -> bytes | None:
        held = self.held
        if len(held) < FIXED_HEADER_BYTES:
            # A journal may end with a line feed that somebody appended.
            if self.ended and held and held != b"\n":
                raise TruncatedFrame(
                    f"the journal ends within the header of a frame: {bytes(held)!r}"
                )
            return None
        if not held.startswith(FIXED_WORD):
            found = held.find(FIXED_WORD, 1)
            # The last three bytes may begin the word.
            junk = self.take(found if found > 0 else len(held) - len(FIXED_WORD) + 1)
            raise Desynchronised(junk)
        size = FIXED_HEADER_BYTES + _LENGTH.unpack_from(held, len(FIXED_WORD))[0]
        self.check_length(size)
        if len(held) >= size:
            return self.take(size)
        if self.ended:
            raise TruncatedFrame(
                f"the journal ends within a frame of {size} bytes, after {len(held)} of them"
            )
        return None

    def decode(self, frame: bytes, message: ProtoFrameable) -> None:
        try:
            message.ParseFromString(frame[FIXED_HEADER_BYTES:])
        except Exception as error:  # each library of protobuf has its own
            raise FramingError(
                f"a frame of {len(frame)} bytes is no {type(message).__name__}: {error}"
            ) from error


class FixedProtobufFraming:
    """`application/x-protobuf-fixed`: a word, the length, and a protobuf message."""

    content_type = FIXED_PROTOBUF

    def encode(self, message: ProtoFrameable) -> bytes:
        """Return the frame of a message."""
        payload = message.SerializeToString()
        return b"".join((FIXED_WORD, _LENGTH.pack(len(payload)), payload))

    def decoder(self, max_frame_bytes: int = MAX_FRAME_BYTES) -> Decoder:
        """Return a decoder for the bytes of one journal."""
        return _FixedDecoder(max_frame_bytes)


class _LineDecoder(_Bytes):
    """Cuts after line feeds, but not within quotes if `quotes`."""

    quotes = False

    def __init__(self, max_frame_bytes: int) -> None:
        super().__init__(max_frame_bytes)
        self._searched = 0
        self._quoted = False

    def next_frame(self) -> bytes | None:
        held = self.held
        while (end := held.find(b"\n", self._searched)) >= 0:
            if self.quotes and held.count(b'"', self._searched, end) % 2:
                self._quoted = not self._quoted
            self._searched = end + 1
            if not self._quoted:
                self._searched = 0
                self.check_length(end + 1)
                return self.take(end + 1)
        self.check_length(len(held))
        if self.ended and held:
            raise TruncatedFrame(f"the journal ends within a line, after {len(held)} bytes of it")
        if not self.quotes:
            self._searched = len(held)
        return None


class _JsonDecoder(_LineDecoder):
    def decode(self, frame: bytes, message: JsonFrameable) -> None:
        try:
            message.unmarshal_json(frame)
        except ValueError as error:
            raise FramingError(
                f"a line of {len(frame)} bytes is no {type(message).__name__}: {error}"
            ) from error


class JsonLinesFraming:
    """`application/x-ndjson`: a line of JSON for each message."""

    content_type = JSON_LINES

    def encode(self, message: JsonFrameable) -> bytes:
        """Return the frame of a message.

        Raises:
            FramingError: its JSON has a line feed.
        """
        data = message.marshal_json()
        if b"\n" in data:
            raise FramingError(f"the JSON of a {type(message).__name__} has line feeds")
        return data + b"\n"

    def decoder(self, max_frame_bytes: int = MAX_FRAME_BYTES) -> Decoder:
        """Return a decoder for the bytes of one journal."""
        return _JsonDecoder(max_frame_bytes)


class _CsvDecoder(_LineDecoder):
    quotes = True

    def __init__(self, max_frame_bytes: int) -> None:
        super().__init__(max_frame_bytes)
        self._width: int | None = None
        self._rows = 0

    def decode(self, frame: bytes, message: CsvFrameable) -> None:
        self._rows += 1
        try:
            (fields,) = csv.reader(io.StringIO(frame.decode(), newline=""), strict=True)
            if self._width is None:
                self._width = len(fields)
            if len(fields) != self._width:
                raise ValueError(f"it has {len(fields)} fields, and the first had {self._width}")
            message.unmarshal_csv(fields)
        except (ValueError, csv.Error) as error:
            raise FramingError(f"record {self._rows} of the CSV is malformed: {error}") from error


class CsvFraming:
    """`text/csv`: a record of RFC 4180 for each message, all with the same number of fields."""

    content_type = CSV

    def encode(self, message: CsvFrameable) -> bytes:
        """Return the frame of a message.

        Raises:
            InvalidRequest: a field contains a lone surrogate.
        """
        text = io.StringIO(newline="")
        # With this terminator it quotes fields with CR too.
        csv.writer(text, lineterminator="\r\n").writerow(message.marshal_csv())
        record = text.getvalue().removesuffix("\r\n")
        check_text(record, "a record of CSV")
        return record.encode() + b"\n"

    def decoder(self, max_frame_bytes: int = MAX_FRAME_BYTES) -> Decoder:
        """Return a decoder for the bytes of one journal."""
        return _CsvDecoder(max_frame_bytes)


for _framing in (FixedProtobufFraming(), JsonLinesFraming(), CsvFraming()):
    register_framing(_framing)
