"""The data lane before h2 behaves like h2 alone: the same random frames are given to both."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from random import Random

from h2.connection import H2Connection
from h2.events import DataReceived, Event
from h2.exceptions import ProtocolError
from hpack import Encoder
from hypothesis import given, settings
from hypothesis import strategies as st

from liftbridge_aio.net.core.data_lane import DataLane
from support.examples import examples
from support.peers.lane_frames import (
    CONTINUATION,
    END_HEADERS,
    END_STREAM,
    GOAWAY_FRAME,
    HEADERS,
    OPENING,
    PING_FRAME,
    PRIORITY,
    RESPONSE,
    SETTINGS,
    TRAILERS,
    client,
    data,
    flow_size,
    frame,
    grpc,
    increments,
    rst_stream,
    window_update,
)

REGISTERED = (1, 3, 5)
STREAMS = (*REGISTERED, 7)
LIMIT = 20_000
READ = 2**16
"""Servers' sockets are read in such pieces at most."""
WINDOW = 4 * READ


class Server:
    """Writes frames as a server may; with `mistakes`, also as none may."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw
        self._encoder = Encoder()
        self._unsent: dict[int, bytes] = defaultdict(bytes)
        self._answered: set[int] = set()
        self._ended: set[int] = set()
        self.sent = OPENING

    def step(self) -> None:
        draw = self._draw
        stream_id = draw(st.sampled_from(STREAMS))
        if stream_id in self._ended or draw(st.integers(0, 5)) == 0:
            self.sent += draw(OTHER_FRAMES)
        elif stream_id not in self._answered:
            self._answered.add(stream_id)
            self._headers(stream_id, RESPONSE, 0)
        else:
            self._go_on(stream_id)

    def _go_on(self, stream_id: int) -> None:
        draw = self._draw
        match draw(st.sampled_from(("messages", "messages", "alike", "part", "part", "end"))):
            case "messages":
                self._unsent[stream_id] += grpc(*draw(MESSAGES))
                self._data(stream_id, len(self._unsent[stream_id]))
            case "alike":
                for number in range(draw(st.integers(1, 40))):
                    self._unsent[stream_id] += grpc(b"%09d" % number)
                    self._data(stream_id, len(self._unsent[stream_id]))
            case "part":
                self._unsent[stream_id] += grpc(*draw(MESSAGES))
                self._data(stream_id, draw(st.integers(0, len(self._unsent[stream_id]))))
            case _:
                self._end(stream_id)

    def _data(self, stream_id: int, size: int, *, end: bool = False) -> None:
        padding = self._draw(st.sampled_from((None, None, None, 0, 1, 255)))
        size = min(size, 16_384 - (0 if padding is None else padding + 1))
        unsent = self._unsent[stream_id]
        self.sent += data(stream_id, unsent[:size], end=end, padding=padding)
        self._unsent[stream_id] = unsent[size:]

    def _end(self, stream_id: int) -> None:
        self._ended.add(stream_id)
        match self._draw(st.sampled_from(("data", "trailers", "reset"))):
            case "data":
                self._data(stream_id, len(self._unsent[stream_id]), end=True)
            case "trailers":
                self._headers(stream_id, TRAILERS, END_STREAM)
            case _:
                self.sent += rst_stream(stream_id)

    def _headers(self, stream_id: int, headers: list[tuple[str, str]], flags: int) -> None:
        block = self._encoder.encode(headers)
        cuts = sorted(self._draw(st.lists(st.integers(0, len(block)), max_size=2)))
        parts = [block[start:stop] for start, stop in zip([0, *cuts], [*cuts, None], strict=True)]
        for number, part in enumerate(parts):
            last = END_HEADERS if number == len(cuts) else 0
            if number:
                self.sent += frame(CONTINUATION, last, stream_id, part)
            else:
                self.sent += frame(HEADERS, flags | last, stream_id, part)


MESSAGES = st.lists(
    st.builds(bytes, st.integers(0, 60) | st.sampled_from((0, 16_379, 16_380, LIMIT))),
    min_size=1,
    max_size=4,
)
OTHER_FRAMES = st.sampled_from(
    [
        PING_FRAME,
        window_update(0, 1000),
        window_update(1, 1000),
        window_update(7, 1000),
        frame(SETTINGS, 0, 0, b"\0\4" + (50_000).to_bytes(4, "big")),
        frame(SETTINGS, 0, 0, b"\0\5" + (20_000).to_bytes(4, "big")),
        frame(PRIORITY, 0, 3, bytes([0, 0, 0, 0, 7])),
        frame(0x42, 0xFF, 1, b"of an extension"),
        frame(0x42, 0, 0),
    ]
)
MISTAKES = st.sampled_from(
    [
        frame(0, 0, 0, grpc(b"no stream")),
        frame(0, 8, 1, b""),
        frame(0, 8, 3, b"\x04abc"),
        frame(0, 0, 1, bytes(16_385)),
        frame(HEADERS, 0, 1, b"") + data(1, grpc(b"in a header block")),
        frame(CONTINUATION, END_HEADERS, 1, b""),
        rst_stream(1) + data(1, grpc(b"late")),
        data(9, grpc(b"never opened")),
        GOAWAY_FRAME + PING_FRAME,
        b"HTTP/1.1 400 Bad Request\r\n",
    ]
)


@st.composite
def scripts(draw: st.DrawFn) -> bytes:
    server = Server(draw)
    for _ in range(draw(st.integers(1, 25))):
        server.step()
    if draw(st.integers(0, 3)) == 0:
        server.sent += draw(MISTAKES)
        server.step()
    return server.sent


@dataclass
class Outcome:
    """Frames as the client's side took them."""

    events: list[str] = field(default_factory=list)
    messages: dict[int, list[bytes]] = field(default_factory=lambda: defaultdict(list))
    incomplete: dict[int, bool] = field(default_factory=dict)
    answer: bytes = b""
    refused: str = ""
    flow: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    """Bytes on the registered streams, as flow control counts them."""
    overhead: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    """Bytes of padding among them."""


def note(outcome: Outcome, events: list[Event]) -> dict[int, bytes]:
    payloads: dict[int, bytes] = defaultdict(bytes)
    for event in events:
        if isinstance(event, DataReceived) and event.stream_id in REGISTERED:
            payloads[event.stream_id] += event.data
            outcome.flow[event.stream_id] += event.flow_controlled_length
            outcome.overhead[event.stream_id] += event.flow_controlled_length - len(event.data)
        else:
            outcome.events.append(repr(event))
    return payloads


def receive(h2: H2Connection, outcome: Outcome, part: bytes) -> dict[int, bytes]:
    try:
        return note(outcome, h2.receive_data(part))
    except ProtocolError as error:
        outcome.refused = type(error).__name__
        return {}


def frames_of(sent: bytes) -> list[bytes]:
    parts: list[bytes] = []
    start = 0
    while start < len(sent):
        stop = start + 9 + int.from_bytes(sent[start : start + 3], "big")
        parts.append(sent[start:stop])
        start = stop
    return parts


def split(payload: bytes) -> tuple[list[bytes], bool]:
    """Cut what came on a stream into messages; tell whether one is left unfinished."""
    messages: list[bytes] = []
    while len(payload) >= 5:
        stop = 5 + int.from_bytes(payload[1:5], "big")
        if len(payload) < stop:
            break
        messages.append(payload[5:stop])
        payload = payload[stop:]
    return messages, bool(payload)


def h2_alone(sent: bytes) -> Outcome:
    outcome = Outcome()
    h2 = client(STREAMS)
    payloads: dict[int, bytes] = defaultdict(bytes)
    # Frame by frame: h2 forgets the events of a read in which it found a mistake.
    for part in frames_of(sent):
        for stream_id, payload in receive(h2, outcome, part).items():
            payloads[stream_id] += payload
        outcome.answer += h2.data_to_send()
        if outcome.refused:
            break
    for stream_id in REGISTERED:
        outcome.messages[stream_id], outcome.incomplete[stream_id] = split(payloads[stream_id])
    return outcome


def lane_and_h2(sent: bytes, cuts: list[int]) -> tuple[Outcome, dict[int, int], dict[int, int]]:
    """Return the outcome, the credit that was given by stream, and what was drained by stream."""
    outcome = Outcome()
    h2 = client(STREAMS)
    lane = DataLane(connection_window=WINDOW)
    streams = [lane.open(number, window=WINDOW, max_message_bytes=LIMIT) for number in REGISTERED]
    credit: dict[int, int] = defaultdict(int)
    consumed: dict[int, int] = defaultdict(int)
    for start, stop in zip([0, *cuts], [*cuts, len(sent)], strict=True):
        of_h2 = lane.feed(sent[start:stop])
        for stream in lane.touched:
            taken, stream.messages = stream.messages, []
            outcome.messages[stream.stream_id] += taken
            stream.consumed(flow_size(taken))
            consumed[stream.stream_id] += flow_size(taken)
        lane.touched.clear()
        for part in frames_of(of_h2):
            receive(h2, outcome, part)
            # A GOAWAY makes h2 forget what it was about to send.
            outcome.answer += h2.data_to_send()
            if outcome.refused:
                break
        for stream_id, increment in increments(lane.credit()).items():
            credit[stream_id] += increment
        if outcome.refused:
            break
    assert lane.violation is None
    for stream in streams:
        assert stream.failure is None
        outcome.incomplete[stream.stream_id] = stream.incomplete
        outcome.messages.setdefault(stream.stream_id, [])
    return outcome, credit, consumed


@settings(max_examples=examples(80), deadline=None)
@given(sent=scripts(), chance=st.randoms(use_true_random=False), parts=st.integers(0, 30))
def test_the_lane_before_h2_makes_of_all_frames_what_h2_alone_makes(
    sent: bytes, chance: Random, parts: int
) -> None:
    random_cuts = {chance.randrange(len(sent)) for _ in range(parts)}
    cuts = sorted(random_cuts.union(range(READ, len(sent), READ)))
    expected = h2_alone(sent)
    found, credit, consumed = lane_and_h2(sent, cuts)
    assert found.events == expected.events
    assert found.answer == expected.answer
    assert found.refused == expected.refused
    for number in REGISTERED:
        # Of a connection that breaks, the lane may have taken what stands behind the mistake.
        arrived = found.messages[number]
        count = len(expected.messages[number]) if expected.refused else len(arrived)
        assert arrived[:count] == expected.messages[number]
    if not expected.refused:
        assert found.incomplete == expected.incomplete
        # h2 counted none of it, and what was not given back yet is not worth a frame.
        assert sum(found.flow.values()) == 0
        assert 0 <= sum(expected.flow.values()) - credit.pop(0, 0) < READ
        for number, given_back in credit.items():
            assert given_back <= consumed[number] + expected.overhead[number]
