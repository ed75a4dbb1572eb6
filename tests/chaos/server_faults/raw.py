"""Calls to a server with bytes that are put together here: no generated code, no client.

Requests and replies are protobuf, of which these scripts need two kinds of fields: numbers and
bytes. The numbers of the fields are those of the published API.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import grpc

LEADER: Final = 0
ALL: Final = 1
EARLIEST: Final = 2
NO_DEADLINE: Final = None

Value = int | str | bytes | None
Fields = dict[int, list[Any]]
"""The values of a message, numbers without a sign or bytes, by the number of their field."""


def encode(*fields: tuple[int, Value]) -> bytes:
    """A protobuf message of these fields, in order; zero, empty and None are left out."""
    return b"".join(_field(number, value) for number, value in fields if value)


def _field(number: int, value: Value) -> bytes:
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    data = value.encode() if isinstance(value, str) else value or b""
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    value &= 2**64 - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def decode(data: bytes) -> Fields:
    """The values of each field, by its number.

    Raises:
        ValueError: A field is neither a number nor bytes.
    """
    found: Fields = {}
    position = 0
    while position < len(data):
        tag, position = _read_varint(data, position)
        number, wire_type = tag >> 3, tag & 7
        size, position = _read_varint(data, position)
        value: int | bytes = size
        if wire_type == 2:
            value = data[position : position + size]
            position += size
        elif wire_type:
            raise ValueError(f"field {number} has the wire type {wire_type}")
        found.setdefault(number, []).append(value)
    return found


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        value |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            return value, position


def number(fields: Fields, which: int) -> int:
    """The last value of a field with a sign; 0 where there is none."""
    value = fields.get(which, [0])[-1]
    assert isinstance(value, int)
    return value - 2**64 if value >= 2**63 else value


def data_of(fields: Fields, which: int) -> bytes:
    """The last value of a field of bytes; none where there is none."""
    value = fields.get(which, [b""])[-1]
    assert isinstance(value, bytes)
    return value


class Refused(Exception):
    """A call that ended otherwise than with a reply: the name of its code, and its text."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(f"{code}: {text}")
        self.code = code
        self.text = text


@dataclass(frozen=True, slots=True)
class Stored:
    """A message as it is on the log."""

    offset: int
    value: bytes


@dataclass(frozen=True, slots=True)
class Partition:
    """State of a partition as a node reports it."""

    leader: str
    isr: tuple[str, ...]
    high_watermark: int
    newest_offset: int


class Server:
    """One connection to one node; calls block.

    Every call raises `Refused` where it fails, and takes `timeout` seconds at most.
    """

    def __init__(self, address: str) -> None:
        options = [
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.max_reconnect_backoff_ms", 200),
        ]
        self._channel = grpc.insecure_channel(address, options=options)

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()

    def call(self, procedure: str, request: bytes, timeout: float = 2.0) -> bytes:
        """A unary call."""
        method = self._channel.unary_unary(f"/proto.API/{procedure}")
        try:
            reply: bytes = method(request, timeout=timeout, wait_for_ready=True)
        except grpc.RpcError as error:
            raise _refused(error) from None
        return reply

    def create(
        self, stream: str, replicas: int, options: bytes = b"", timeout: float = 5.0
    ) -> bool:
        """Make a stream of one partition; `options` are more fields of the request."""
        request = encode((1, stream), (2, stream), (4, replicas), (5, 1)) + options
        self.call("CreateStream", request, timeout)
        return True

    def publish(self, stream: str, value: bytes, policy: int = ALL, timeout: float = 2.0) -> int:
        """Publish a message and wait for its ack: the offset."""
        request = encode((2, value), (3, stream), (7, value), (8, policy), (9, -1))
        ack = decode(data_of(decode(self.call("Publish", request, timeout)), 1))
        if error := number(ack, 10):
            raise Refused("NACK", f"error {error}")
        return number(ack, 4)

    def read(
        self, stream: str, count: int, timeout: float = 3.0, *, replica: bool = False
    ) -> list[Stored]:
        """The first `count` messages, or what there is of them when the time is over."""
        return list(self._messages(stream, count, timeout, replica=replica))

    def _messages(
        self, stream: str, count: int, timeout: float, *, replica: bool
    ) -> Iterator[Stored]:
        request = encode((1, stream), (3, EARLIEST), (6, int(replica)))
        replies: Any = self._channel.unary_stream("/proto.API/Subscribe")(request, timeout=timeout)
        try:
            next(replies)  # an empty message is the handshake
            for _ in range(count):
                fields = decode(next(replies))
                yield Stored(number(fields, 1), data_of(fields, 3))
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED:
                raise _refused(error) from None
        finally:
            replies.cancel()

    def partition(self, stream: str, timeout: float = 4.0) -> Partition:
        """Fetch the node's state of partition 0 of a stream."""
        reply = decode(self.call("FetchMetadata", encode((1, stream)), timeout))
        entry = decode(data_of(decode(data_of(reply, 2)), 4))  # of a map: key and value
        fields = decode(data_of(entry, 2))
        isr = tuple(each.decode() for each in fields.get(4, []) if isinstance(each, bytes))
        leader = data_of(fields, 2).decode()
        return Partition(leader, isr, number(fields, 5), number(fields, 6))

    def set_cursor(self, cursor: str, stream: str, offset: int, timeout: float = 5.0) -> None:
        """Store a position for partition 0."""
        self.call("SetCursor", encode((1, stream), (3, cursor), (4, offset)), timeout)

    def fetch_cursor(self, cursor: str, stream: str, timeout: float = 5.0) -> int:
        """The stored position for partition 0; -1 where there is none."""
        reply = self.call("FetchCursor", encode((1, stream), (3, cursor)), timeout)
        return number(decode(reply), 1)


def _refused(error: Any) -> Refused:
    return Refused(error.code().name, error.details() or "")
