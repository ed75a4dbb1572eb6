"""The parts of our client that touch every message, each as a function that can be timed.

Messages have 250 bytes in them and come as a v1.9.0 server sends them: one in each DATA frame, and
about as many of them at a time as one read brings.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Final

from liftbridge_aio import AckPolicy
from liftbridge_aio.net.core.data_lane import DataLane
from liftbridge_aio.wire import proto
from liftbridge_aio.wire.codec import (
    decode_message,
    decode_messages,
    decode_publish_responses,
    frame_publish,
    message_place,
    publish_head,
)

AT_A_TIME: Final = 100
STREAM: Final = "bench-stream"
CORRELATION_ID: Final = "000000000000000000001f"
ACK_INBOX: Final = "liftbridge-default.ack.789eb3f37a35321aac24cf"
NOW: Final = 1_795_255_411_398_231_509
VALUE: Final = b"x" * 250
_PUBLISH_HEAD: Final = publish_head(STREAM, 0, AckPolicy.LEADER)
FIRST: Final = 100_000
"""The first offset: from here on, as many follow as are equally long."""

_FRAME: Final = Struct(">HBBBI")
_HEADERS: Final = 1
_DATA: Final = 0
_END_HEADERS: Final = 4
_WINDOW: Final = 4 * 2**20


def message(offset: int) -> bytes:
    """A Message as a server sends it."""
    return bytes(
        proto.Message(
            offset=offset,
            value=VALUE,
            timestamp=NOW + offset,
            stream=STREAM,
            subject=STREAM,
            headers={"subject": STREAM.encode(), "reply": b""},
        )
    )


def publish_response(offset: int) -> bytes:
    """An ack as a server sends it."""
    return bytes(
        proto.PublishResponse(
            correlation_id=CORRELATION_ID,
            ack=proto.Ack(
                stream=STREAM,
                partition_subject=STREAM,
                msg_subject=STREAM,
                offset=offset,
                ack_inbox=ACK_INBOX,
                correlation_id=CORRELATION_ID,
                reception_timestamp=NOW,
                commit_timestamp=NOW + offset,
            ),
        )
    )


def encode() -> bytes:
    """One message to publish."""
    return frame_publish(_PUBLISH_HEAD, VALUE, None, None, None, CORRELATION_ID)


def frame(kind: int, flags: int, payload: bytes) -> bytes:
    """An HTTP/2 frame of stream 1."""
    size = len(payload)
    return _FRAME.pack(size >> 8, size & 0xFF, kind, flags, 1) + payload


class Splitting:
    """A data lane that gets the same bytes again and again, and whose user keeps up."""

    def __init__(self, messages: list[bytes]) -> None:
        self._lane = DataLane()
        self._stream = self._lane.open(1, window=_WINDOW, max_message_bytes=2**20)
        self._lane.feed(frame(_HEADERS, _END_HEADERS, b"\x88"))
        payloads = [b"\0" + len(each).to_bytes(4, "big") + each for each in messages]
        self._size = sum(map(len, payloads))
        self._bytes = b"".join(frame(_DATA, 0, payload) for payload in payloads)
        self._count = len(messages)

    def run(self) -> None:
        """Split what one read brought, and give the credit for it back."""
        lane, stream = self._lane, self._stream
        if lane.feed(self._bytes) or len(stream.messages) != self._count:
            raise AssertionError("the lane did not take what it should")
        stream.messages = []
        lane.touched.clear()
        stream.consumed(self._size)
        lane.credit()


def alone() -> dict[str, Callable[[], object]]:
    """Functions that process one message, by name."""
    a_message, an_ack = message(FIRST), [publish_response(FIRST)]
    return {
        "encode a publish request": encode,
        "decode an ack": lambda: decode_publish_responses(an_ack),
        "decode a message": lambda: decode_message(a_message),
        "read a message's place": lambda: message_place(a_message),
    }


def together() -> dict[str, Callable[[], object]]:
    """Functions that process `AT_A_TIME` messages, by name."""
    messages = [message(FIRST + number) for number in range(AT_A_TIME)]
    acks = [publish_response(FIRST + number) for number in range(AT_A_TIME)]
    return {
        f"decode acks, {AT_A_TIME} at a time": lambda: decode_publish_responses(acks),
        f"decode messages, {AT_A_TIME} at a time": lambda: decode_messages(messages),
        f"split frames, {AT_A_TIME} messages": Splitting(messages).run,
        f"split frames, {AT_A_TIME} acks": Splitting(acks).run,
    }
