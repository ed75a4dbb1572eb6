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
"""What a client sends first."""
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
_NAME: Final = re.compile(r"[.a-zA-Z0-9_-]{1,64}(#ephemeral)?")
_LONGEST_NAME: Final = 64
_NON_FATAL: Final = frozenset({"E_FIN_FAILED", "E_REQ_FAILED", "E_TOUCH_FAILED"})


class FrameType(enum.IntEnum):
    """The type of a frame of the server."""

    RESPONSE = 0
    ERROR = 1
    MESSAGE = 2


class Frame(NamedTuple):
    """A frame of the server."""

    type: FrameType
    data: bytes


class FrameReader:
    """Cuts bytes into frames, in pieces of any size.

    Args:
        max_frame_bytes: larger frames are refused; an HTTP answer read as a size is one.
    """

    def __init__(self, max_frame_bytes: int) -> None:
        self._max = max_frame_bytes
        self._rest = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        """Return the frames that are complete with these bytes.

        Raises:
            ProtocolError: this is not NSQ.
        """
        rest = self._rest
        rest += data
        frames = []
        at = 0
        while len(rest) - at >= _HEAD.size:
            size, kind = _HEAD.unpack_from(rest, at)
            if not _LENGTH.size <= size <= self._max or kind not in iter(FrameType):
                message = f"a frame of {size} bytes and type {kind}"
                raise ProtocolError(message)
            end = at + _LENGTH.size + size
            if end > len(rest):
                break
            frames.append(Frame(FrameType(kind), bytes(rest[at + _HEAD.size : end])))
            at = end
        del rest[:at]
        return frames


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
        message = f"a message of {len(data)} bytes"
        raise ProtocolError(message)
    timestamp, attempts, message_id = _MESSAGE.unpack_from(data)
    return DeliveredMessage(timestamp, attempts, message_id, data[_MESSAGE.size :])


class Refusal(NamedTuple):
    """An error frame."""

    code: str
    text: str
    message_id: bytes | None
    """The message that a FIN, REQ or TOUCH was for; None for other commands."""

    @property
    def is_fatal(self) -> bool:
        """True if nsqd closes the connection after it."""
        return self.code not in _NON_FATAL

    def error(self) -> CommandRefused:
        """Return the error that users see."""
        kind = CommandRefused
        if not self.is_fatal:
            kind = NotInFlight
        elif self.code in {"E_UNAUTHORIZED", "E_AUTH_FAILED", "E_AUTH_FIRST", "E_AUTH_ERROR"}:
            kind = Unauthorized
        error = kind(f"nsqd refused: {self.text}")
        error.code = self.code
        return error


def parse_error(data: bytes) -> Refusal:
    """Parse the data of an error frame."""
    text = data.decode("utf-8", "replace")
    code, _, rest = text.partition(" ")
    words = rest.split(" ")
    about = words[1] if code in _NON_FATAL and len(words) > 1 else None
    return Refusal(code, text, None if about is None else about.encode())


def check_name(name: str, what: str) -> str:
    """Return the name of a topic or channel; nsqd would split one with a blank silently.

    Raises:
        BadName: it is invalid.
    """
    if _NAME.fullmatch(name) is None or len(name) > _LONGEST_NAME:
        message = f"{name!r} is no name of a {what}"
        raise BadName(message)
    return name


def identify(settings: bytes) -> bytes:
    """Encode IDENTIFY with settings in JSON."""
    return b"IDENTIFY\n" + _with_length(settings)


def auth(secret: bytes) -> bytes:
    """Encode AUTH."""
    return b"AUTH\n" + _with_length(secret)


def sub(topic: str, channel: str) -> bytes:
    """Encode SUB."""
    return f"SUB {check_name(topic, 'topic')} {check_name(channel, 'channel')}\n".encode()


def pub(topic: str, body: bytes) -> bytes:
    """Encode PUB."""
    return f"PUB {check_name(topic, 'topic')}\n".encode() + _with_length(body)


def dpub(topic: str, milliseconds: int, body: bytes) -> bytes:
    """Encode DPUB: publish with a delay."""
    return f"DPUB {check_name(topic, 'topic')} {milliseconds}\n".encode() + _with_length(body)


def mpub(topic: str, bodies: Iterable[bytes]) -> bytes:
    """Encode MPUB: publish several."""
    parts = [_with_length(body) for body in bodies]
    content = b"".join([_LENGTH.pack(len(parts)), *parts])
    return f"MPUB {check_name(topic, 'topic')}\n".encode() + _with_length(content)


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
