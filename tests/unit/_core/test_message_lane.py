from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liftbridge_aio._core.message_lane import (
    MessageLane,
    parse_publish_head,
    publish_commands,
    publish_head,
)

MINE = ["_INBOX.mine", "acks"]
OTHERS = ["_INBOX.other", "MSG", "acks.more"]

payloads = st.one_of(st.binary(max_size=30), st.just(b"MSG acks 1 5\r\nhello\r\n"))
replies = st.sampled_from(["", "answers.here"])
frames = st.lists(
    st.one_of(
        st.tuples(st.just("MSG"), st.sampled_from(MINE + OTHERS), replies, payloads),
        st.tuples(st.just("HMSG"), st.sampled_from(MINE), st.just(""), payloads),
        st.sampled_from([b"PING\r\n", b"+OK\r\n", b'INFO {"a":1}\r\n', b"-ERR 'no'\r\n"]),
    ),
    max_size=12,
)


def encoded(frame: tuple[str, str, str, bytes] | bytes) -> bytes:
    if isinstance(frame, bytes):
        return frame
    kind, subject, reply, payload = frame
    head = b"NATS/1.0 503\r\n\r\n" if kind == "HMSG" else b""
    sizes = f"{len(head)} " if head else ""
    line = f"{kind} {subject} 7 {reply + ' ' if reply else ''}{sizes}{len(head) + len(payload)}"
    return line.encode() + b"\r\n" + head + payload + b"\r\n"


class Taken(dict[str, list[bytes]]):
    """A lane, and what it has taken."""

    def __init__(self) -> None:
        super().__init__()
        self.lane = MessageLane()
        for subject in MINE:
            self[subject] = []
            self.lane.takers[subject.encode()] = self[subject].extend


@given(frames, st.lists(st.integers(1, 60), min_size=1))
def test_it_takes_its_messages_and_passes_the_rest_on(
    sent: list[tuple[str, str, str, bytes] | bytes], sizes: list[int]
) -> None:
    """However the bytes are cut into pieces."""
    taken = Taken()
    data = b"".join(map(encoded, sent))
    passed = bytearray()
    number = 0
    while data:
        size = sizes[number % len(sizes)]
        number += 1
        passed += taken.lane.feed(data[:size])
        data = data[size:]
    mine = [frame for frame in sent if frame[0] == "MSG" and frame[1] in MINE]
    for subject in MINE:
        assert taken[subject] == [frame[3] for frame in mine if frame[1] == subject]
    assert bytes(passed) == b"".join(encoded(frame) for frame in sent if frame not in mine)


@given(st.lists(st.binary(max_size=40)))
def test_garbage_is_passed_on_for_nats_py_to_refuse(pieces: list[bytes]) -> None:
    taken = Taken()
    data = b"".join(pieces)
    passed = b"".join(map(taken.lane.feed, pieces))
    assert data.startswith(passed)
    assert not any(taken.values())


@pytest.mark.parametrize("line", [b"MSG acks 1 -5", b"MSG acks 1 x", b"MSG ", b"MSG", b"HMSG a"])
def test_a_malformed_line_is_passed_on(line: bytes) -> None:
    taken = Taken()
    passed = taken.lane.feed(line + b"\r\nPING\r\n" + b"MSG acks 1 2\r\nhi\r\n")
    assert passed == line + b"\r\nPING\r\n"
    assert taken["acks"] == [b"hi"]


def test_a_line_without_an_end_is_passed_on() -> None:
    taken = Taken()
    endless = b"x" * 10_000
    assert taken.lane.feed(endless) == endless


def test_another_connection_begins_with_a_frame() -> None:
    taken = Taken()
    assert taken.lane.feed(b"MSG acks 1 100\r\nhalf of") == b""
    taken.lane.reset()
    assert taken.lane.feed(b"PING\r\n") == b"PING\r\n"


def test_a_large_message_is_put_together_once() -> None:
    taken = Taken()
    payload = bytes(2**20)
    data = encoded(("MSG", "acks", "", payload))
    for begin in range(0, len(data), 1000):
        assert taken.lane.feed(data[begin : begin + 1000]) == b""
    assert taken["acks"] == [payload]


@given(st.lists(st.binary(max_size=3), min_size=1), replies)
def test_publish_commands(payloads: list[bytes], reply: str) -> None:
    head = publish_head("a.b", reply)
    assert parse_publish_head(head) == ("a.b", reply)
    words = " ".join(["PUB", "a.b", *([reply] if reply else [])])
    assert publish_commands(head, payloads) == b"".join(
        f"{words} {len(payload)}\r\n".encode() + payload + b"\r\n" for payload in payloads
    )
