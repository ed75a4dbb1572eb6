"""Events survive any cut and any line end; data cannot contain an event."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liftbridge_aio.durable_streams.core import sse
from liftbridge_aio.durable_streams.core.parsing import is_cursor, is_offset
from liftbridge_aio.durable_streams.core.sse import Control, Event, Parser
from liftbridge_aio.errors import MalformedData

KINDS = st.sampled_from(["data", "control", "message", "of-the-future"])
TEXTS = st.text(alphabet=st.sampled_from(" :aé\n\r\u0085\u2028\u2029{}"), max_size=20)


def parsed(stream: bytes, cuts: list[int]) -> list[Event]:
    parser, found = Parser(), []
    for begin, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        found += parser.feed(stream[begin:end])
    return found


def with_line_feeds(text: str) -> bytes:
    return re.sub("\r\n|\r", "\n", text).encode()


@given(st.lists(st.tuples(KINDS, TEXTS), max_size=6), st.data())
def test_events_survive_any_cut_and_hold_any_text(
    events: list[tuple[str, str]], data: st.DataObject
) -> None:
    stream = b"".join(sse.encode_event(kind, text.encode()) for kind, text in events)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    assert parsed(stream, cuts) == [Event(kind, with_line_feeds(text)) for kind, text in events]


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_lines_may_come_byte_by_byte(end: bytes) -> None:
    stream = end.join([b"event: data", b"data: 1", b"data: 2", b"", b"data: 3", b"", b""])
    found = parsed(stream, list(range(len(stream))))
    assert found == [Event("data", b"1\n2"), Event("message", b"3")]


@given(st.binary(max_size=60), st.data())
def test_any_bytes_are_taken_alike_however_they_are_cut(stream: bytes, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    assert parsed(stream, cuts) == parsed(stream, [])


LINES = st.sampled_from(
    [
        *("event: data", "event:data", "event:x", "data: a", "data:a", "data:  a", "data:"),
        *("data", "id: 1", ":", "dataa: 1"),
    ]
)


@given(st.lists(LINES, min_size=1, max_size=6))
def test_lines_mean_the_same_in_any_mixture(lines: list[str]) -> None:
    kind, data = "message", []
    for line in lines:  # as the standard has it, step by step
        name, colon, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            data.append(value)
        elif name == "event" and colon:
            kind = value
    found = Parser().feed("\n".join([*lines, "", ""]).encode())
    assert found == ([Event(kind, "\n".join(data).encode())] if data else [])


def test_one_leading_space_is_removed() -> None:
    assert Parser().feed(b"event:data\ndata:  two\n\n") == [Event("data", b" two")]


def test_a_byte_order_mark_is_skipped_at_the_start_alone() -> None:
    mark = "\ufeff".encode()
    found = Parser().feed(mark + b"data:1\n\ndata:" + mark + b"\n\n")
    assert found == [Event("message", b"1"), Event("message", mark)]


def test_an_event_without_data_or_end_is_none() -> None:
    assert Parser().feed(b"event: data\n\n\n\n: comment\n\ndata: incomplete") == []


@given(
    st.builds(
        Control,
        next_offset=st.text(min_size=1, max_size=5).filter(is_offset),
        cursor=st.none() | st.text(max_size=5).filter(is_cursor),
        up_to_date=st.booleans(),
        closed=st.just(value=False),
    )
)
def test_control_events_are_read_as_written(control: Control) -> None:
    (event,) = Parser().feed(sse.encode_control(control))
    assert event.kind == sse.CONTROL
    assert sse.parse_control(event.data) == control


def test_the_last_control_event_has_no_cursor_and_is_up_to_date() -> None:
    (event,) = Parser().feed(sse.encode_control(Control("7", "c", up_to_date=False, closed=True)))
    assert b"streamCursor" not in event.data
    assert sse.parse_control(event.data) == Control("7", None, up_to_date=True, closed=True)


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[]", b"7", b"{}", b'{"streamNextOffset":7}', b'{"streamNextOffset":null}',
     b"\xff", b'{"streamNextOffset":"1","streamCursor":7}', b"[" * 100_000],
)  # fmt: skip
def test_control_events_without_an_offset_are_refused(data: bytes) -> None:
    with pytest.raises(MalformedData):
        sse.parse_control(data)


@given(st.binary(max_size=100) | st.integers(14_000, 60_000).map(bytes))
def test_binary_data_survives_base64(data: bytes) -> None:
    events = Parser().feed(sse.encode_event(sse.DATA, sse.encode_base64(data)))
    assert [sse.decode_base64(event.data) for event in events] == [data]


@pytest.mark.parametrize(
    "data", [b"AQI", b"A===", b"\xff\xff\xff\xff", b"AQ==AQ==", b"AQ I=", b"="]
)
def test_broken_base64_is_refused(data: bytes) -> None:
    with pytest.raises(MalformedData):
        sse.decode_base64(data)
