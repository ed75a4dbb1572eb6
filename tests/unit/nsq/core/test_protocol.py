"""Frames are found wherever the network cuts them; commands are bytes that nsqd knows."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liftbridge_aio.nsq.core import protocol
from liftbridge_aio.nsq.core.protocol import FrameReader, FrameType
from liftbridge_aio.nsq.errors import (
    BadName,
    CommandRefused,
    NotInFlight,
    ProtocolError,
    Unauthorized,
)

FRAMES = st.lists(st.tuples(st.sampled_from([0, 1, 2]), st.binary(max_size=40)), max_size=8)


def encoded(frames: list[tuple[int, bytes]]) -> bytes:
    return b"".join(struct.pack(">ii", len(data) + 4, kind) + data for kind, data in frames)


@given(FRAMES, st.data())
def test_frames_survive_any_cut(frames: list[tuple[int, bytes]], data: st.DataObject) -> None:
    stream = encoded(frames)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=10)))
    reader = FrameReader(1000)
    found = []
    for begin, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        found += reader.feed(stream[begin:end])
    assert found == frames
    assert reader.take_rest() == b""


@given(FRAMES, st.integers(0, 8), st.binary(max_size=20))
def test_the_rest_after_a_frame_is_given_back(
    frames: list[tuple[int, bytes]], taken: int, compressed: bytes
) -> None:
    taken = min(taken, len(frames))
    reader = FrameReader(1000)
    data = encoded(frames) + compressed
    for frame in frames[:taken]:
        assert reader.feed(data, only_one=True) == [frame]
        data = b""
    rest = reader.take_rest() if taken else data
    assert rest == encoded(frames[taken:]) + compressed


def test_a_large_frame_is_joined_once() -> None:
    body = bytes(1_000_000)
    data = encoded([(2, body)])
    reader = FrameReader(len(body))
    found = [frame for at in range(0, len(data), 100) for frame in reader.feed(data[at : at + 100])]
    assert found == [(2, body)]


@pytest.mark.parametrize(
    "data",
    [
        *(b"HTTP/1.1 400 Bad Request", struct.pack(">ii", 3, 0)),
        *(struct.pack(">ii", 8, 3) + bytes(4), struct.pack(">ii", 70_000, 0)),
        *(struct.pack(">ii", 4 + 26 + 101, 2), struct.pack(">ii", -1, 2)),
    ],
)
def test_bytes_that_are_no_frame_are_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError, match="a frame of"):
        FrameReader(100).feed(data)


def test_a_message_is_parsed() -> None:
    data = struct.pack(">qH", 1_700_000_000_000_000_000, 3) + b"0123456789abcdef" + b"body"
    message = protocol.parse_message(data)
    assert message == (1_700_000_000_000_000_000, 3, b"0123456789abcdef", b"body")
    with pytest.raises(ProtocolError, match="a message of 25 bytes"):
        protocol.parse_message(data[:25])


@pytest.mark.parametrize(
    ("data", "fatal", "kind"),
    [
        (b"E_FIN_FAILED FIN 0123456789abcdef failed ID not in flight", False, NotInFlight),
        (b"E_REQ_FAILED REQ 0123456789abcdef failed", False, NotInFlight),
        (b"E_TOUCH_FAILED TOUCH failed", False, NotInFlight),
        (b"E_BAD_TOPIC", True, CommandRefused),
        (b"E_UNAUTHORIZED AUTH failed", True, Unauthorized),
        (b"\xff\xfe", True, CommandRefused),
    ],
)
def test_errors_are_told_apart(data: bytes, fatal: bool, kind: type) -> None:
    refusal = protocol.parse_error(data)
    assert refusal.is_fatal is fatal
    error = refusal.error("a:4150")
    assert type(error) is kind
    assert error.code == data.decode("utf-8", "replace").split()[0]
    assert "a:4150" in str(error)


@pytest.mark.parametrize("name", ["a", "orders.eu-1_X", "a" * 64, "tmp#ephemeral"])
def test_valid_names(name: str) -> None:
    assert protocol.check_name(name, "topic") == name


@pytest.mark.parametrize("name", ["", "a b", "a" * 65, "a#b", "#ephemeral", "a\n", "ä", None, b"a"])
def test_invalid_names(name: object) -> None:
    with pytest.raises(BadName, match="is no name of a topic"):
        protocol.check_name(name, "topic")


def test_commands() -> None:
    assert protocol.sub("t", "c") == b"SUB t c\n"
    assert protocol.pub(protocol.pub_head("t"), b"ab") == b"PUB t\n\0\0\0\2ab"
    assert protocol.dpub("t", 5, b"a") == b"DPUB t 5\n\0\0\0\1a"
    assert protocol.mpub("t", [b"a", b"bc"]) == (
        b"MPUB t\n\0\0\0\x0f" + b"\0\0\0\2" + b"\0\0\0\1a" + b"\0\0\0\2bc"
    )
    assert protocol.rdy(7) == b"RDY 7\n"
    assert protocol.fin(b"0123456789abcdef") == b"FIN 0123456789abcdef\n"
    assert protocol.req(b"0123456789abcdef", 5) == b"REQ 0123456789abcdef 5\n"
    assert protocol.touch(b"0123456789abcdef") == b"TOUCH 0123456789abcdef\n"
    assert protocol.auth(b"s") == b"AUTH\n\0\0\0\1s"
    assert protocol.identify(b"{}") == b"IDENTIFY\n\0\0\0\2{}"


def test_frame_types_are_those_of_the_protocol() -> None:
    assert [kind.value for kind in FrameType] == [0, 1, 2]
