"""The TCP protocol of NSQ, version 2: commands out, frames in. Pure.

Integers are big-endian. A command is a line of ASCII, for some with a body behind its length. A
frame of the server is `size:int32 | type:int32 | data`, where size counts type and data (NSQ's
"TCP Protocol Spec").
"""

from __future__ import annotations

import enum
import re
import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

from liftbridge_aio.nsq.errors import (
    BadName,
    CommandRefused,
    NotInFlight,
    ProtocolError,
    Unauthorized,
)

MAGIC: Final = b"  V2"
"""The first bytes that a client sends."""
HEARTBEAT: Final = b"_heartbeat_"
OK: Final = b"OK"
CLOSE_WAIT: Final = b"CLOSE_WAIT"
NOP: Final = b"NOP\n"
"""The answer to a heartbeat, which has no response itself."""
CLS: Final = b"CLS\n"
"""Asks for no more messages; answered with CLOSE_WAIT."""

_HEAD: Final = struct.Struct(">ii")
_LENGTH: Final = struct.Struct(">i")
_MESSAGE: Final = struct.Struct(">qH16s")
_NAME: Final = re.compile(r"[.a-zA-Z0-9_-]+(#ephemeral)?")
_LONGEST_NAME: Final = 64
_LARGEST_CONTROL: Final = 65_536
"""Bytes of a response or an error, at most."""
_NON_FATAL: Final = frozenset({"E_FIN_FAILED", "E_REQ_FAILED", "E_TOUCH_FAILED"})
_UNAUTHORIZED: Final = frozenset({"E_UNAUTHORIZED", "E_AUTH_FAILED", "E_AUTH_FIRST"})


class FrameType(enum.IntEnum):
    """The type of a frame of the server."""

    RESPONSE = 0
    ERROR = 1
    MESSAGE = 2


_TYPES: Final = frozenset(int(kind) for kind in FrameType)


class FrameReader:
    """Cuts bytes into frames, in pieces of any size.

    Args:
        max_message_bytes: larger bodies are refused; an HTTP answer read as a size is one.
    """

    def __init__(self, max_message_bytes: int) -> None:
        self._largest = max_message_bytes + _LENGTH.size + _MESSAGE.size
        self._pieces: list[bytes] = []
        """The bytes of the next frame, joined once they are enough."""
        self._size = 0
        self._needed = _HEAD.size

    def feed(self, data: bytes, *, only_one: bool = False) -> list[tuple[int, bytes]]:
        """Return type and data of the frames that are complete with these bytes.

        Args:
            data: from the server.
            only_one: stop after a frame, as the bytes after it may be compressed.

        Raises:
            ProtocolError: this is not NSQ.
        """
        if self._pieces:
            self._pieces.append(data)
            self._size += len(data)
            if self._size < self._needed:
                return []
            data = b"".join(self._pieces)
        frames = []
        at, end, needed = 0, len(data), _HEAD.size
        unpack, head, prefix = _HEAD.unpack_from, _HEAD.size, _LENGTH.size
        while end - at >= head:
            size, kind = unpack(data, at)
            largest = self._largest if kind == FrameType.MESSAGE else _LARGEST_CONTROL
            if not prefix <= size <= largest or kind not in _TYPES:
                raise ProtocolError(f"a frame of {size} bytes and type {kind} came")
            stop = at + prefix + size
            if stop > end:
                needed = prefix + size
                break
            frames.append((kind, data[at + head : stop]))
            at = stop
            if only_one:
                break
        self._size, self._needed = end - at, needed
        self._pieces = [data[at:]] if at < end else []
        return frames

    def take_rest(self) -> bytes:
        """Take back the bytes that are no frame yet."""
        rest = b"".join(self._pieces)
        self._pieces = []
        return rest


class DeliveredMessage(NamedTuple):
    """A message as nsqd delivers it."""

    timestamp: int
    """Unix nanoseconds at which nsqd received it."""
    attempts: int
    """Deliveries so far, this one included."""
    id: bytes
    """16 hexadecimal digits, the same at each attempt."""
    body: bytes


def parse_message(data: bytes) -> DeliveredMessage:
    """Parse the data of a message frame.

    Raises:
        ProtocolError: it is too short.
    """
    if len(data) < _MESSAGE.size:
        raise ProtocolError(f"a message of {len(data)} bytes came")
    timestamp, attempts, message_id = _MESSAGE.unpack_from(data)
    return DeliveredMessage(timestamp, attempts, message_id, data[_MESSAGE.size :])


class Refusal(NamedTuple):
    """An error frame."""

    code: str
    text: str

    @property
    def is_fatal(self) -> bool:
        """True if nsqd closes the connection after it."""
        return self.code not in _NON_FATAL

    def error(self, address: str) -> CommandRefused:
        """Return the error that users see."""
        kind = CommandRefused
        if not self.is_fatal:
            kind = NotInFlight
        elif self.code in _UNAUTHORIZED:
            kind = Unauthorized
        error = kind(f"nsqd at {address} refused: {self.text}")
        error.code = self.code
        return error


def parse_error(data: bytes) -> Refusal:
    """Parse the data of an error frame."""
    text = data.decode("utf-8", "replace")
    return Refusal(text.partition(" ")[0], text)


def check_name(name: object, what: str) -> str:
    """Return the name of a topic or channel; nsqd would split one with a blank silently.

    Raises:
        BadName: it is invalid.
    """
    if not isinstance(name, str) or not (_NAME.fullmatch(name) and len(name) <= _LONGEST_NAME):
        raise BadName(f"{name!r} is no name of a {what}")
    return name


def identify(settings: bytes) -> bytes:
    """Encode IDENTIFY with settings in JSON."""
    return b"IDENTIFY\n" + _with_length(settings)


def auth(secret: bytes) -> bytes:
    """Encode AUTH."""
    return b"AUTH\n" + _with_length(secret)


def sub(topic: str, channel: str) -> bytes:
    """Encode SUB."""
    return f"SUB {topic} {channel}\n".encode()


def pub_head(topic: str) -> bytes:
    """Encode the line of PUB, the same for each message of a topic."""
    return f"PUB {topic}\n".encode()


def pub(head: bytes, body: bytes) -> bytes:
    """Encode PUB."""
    return b"%b%b%b" % (head, _LENGTH.pack(len(body)), body)


def dpub(topic: str, milliseconds: int, body: bytes) -> bytes:
    """Encode DPUB: publish with a delay."""
    return f"DPUB {topic} {milliseconds}\n".encode() + _with_length(body)


def mpub(topic: str, bodies: Iterable[bytes]) -> bytes:
    """Encode MPUB: publish several."""
    parts = [_with_length(body) for body in bodies]
    content = b"".join([_LENGTH.pack(len(parts)), *parts])
    return f"MPUB {topic}\n".encode() + _with_length(content)


def rdy(count: int) -> bytes:
    """Encode RDY: the most messages in flight that nsqd may push, until the next RDY."""
    return b"RDY %d\n" % count


def fin(message_id: bytes) -> bytes:
    """Encode FIN: the message is handled."""
    return b"FIN %b\n" % message_id


def req(message_id: bytes, milliseconds: int) -> bytes:
    """Encode REQ: deliver the message again, after a delay."""
    return b"REQ %b %d\n" % (message_id, milliseconds)


def touch(message_id: bytes) -> bytes:
    """Encode TOUCH: begin the message's timeout again."""
    return b"TOUCH %b\n" % message_id


def _with_length(body: bytes) -> bytes:
    return _LENGTH.pack(len(body)) + body
