"""Events arrive in a page as they were meant, by the rules that browsers follow."""

from __future__ import annotations

import base64
import json
import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from liftbridge_aio import InvalidRequest, Message, StreamReset
from liftbridge_aio.integrations.server_sent_events import (
    BINARY,
    HEARTBEAT,
    Event,
    as_json,
    as_text,
    failure,
    id_of,
    mark,
    opening,
    position_of,
)
from support.examples import examples
from support.web.event_source import EventStreamParser, Received

TEXT = st.text() | st.text("a :\r\n\0\N{ZERO WIDTH NO-BREAK SPACE}\N{LINE SEPARATOR}", max_size=8)
ONE_LINE = TEXT.filter(lambda text: not re.search(r"[\r\n]", text))
OFFSETS = st.integers(-1, 2**63 - 2)
CREATED = st.integers(0, 2**63 - 1)
EVENTS = st.builds(Event, TEXT, ONE_LINE)


def message(value: bytes, offset: int = 0, key: bytes = b"") -> Message:
    return Message("orders", 0, offset, key, value, 1, {"kind": b"\xff"})


def arrived(text: str) -> str:
    """Return the text as it arrives: every line end is a line feed."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


@settings(max_examples=examples(50))
@given(st.lists(st.tuples(EVENTS, OFFSETS | st.none()), max_size=5), st.data())
@example([(Event(""), 0)], None)
@example([(Event("a\r\n\rb\n"), 1), (Event(" x", "end"), None)], None)
def test_events_arrive_one_by_one_with_their_ids(
    events: list[tuple[Event, int | None]], data: st.DataObject | None
) -> None:
    stream = opening(1.5, "7")
    expected, last = [], "7"
    for event, offset in events:
        last = last if offset is None else str(offset)
        stream += HEARTBEAT + event.encode(None if offset is None else last)
        expected.append(Received(event.type or "message", arrived(event.data), last))
    parser = EventStreamParser()
    found = []
    cuts = [] if data is None else data.draw(st.lists(st.integers(0, len(stream)), max_size=5))
    for start, end in zip([0, *sorted(cuts)], [*sorted(cuts), len(stream)], strict=True):
        found += parser.feed(stream[start:end])
    assert found == expected
    assert parser.last_event_id == last
    assert parser.reconnection_time == 1500


@given(st.binary())
@example(b"")
@example(b"\xff\r\n")
@example(b"\xef\xbb\xbfa\0")
def test_a_value_arrives_as_text_or_whole_in_base64(value: bytes) -> None:
    [event] = EventStreamParser().feed(as_text(message(value)).encode("0"))
    if event.type == BINARY:
        assert base64.b64decode(event.data, validate=True) == value
        with pytest.raises(UnicodeDecodeError):
            value.decode()
    else:
        assert event.type == "message"
        assert event.data == arrived(value.decode())


@given(st.binary(), st.binary(), OFFSETS)
def test_json_carries_all_of_a_message(value: bytes, key: bytes, offset: int) -> None:
    [event] = EventStreamParser().feed(as_json(message(value, offset, key)).encode())
    told = json.loads(event.data)
    assert told["offset"] == offset
    assert (told["stream"], told["partition"], told["timestamp"]) == ("orders", 0, "1")
    assert told["headers"] == {"kind": {"base64": "/w=="}}
    for name, wanted in (("value", value), ("key", key)):
        held = told[name]
        found = base64.b64decode(held["base64"]) if isinstance(held, dict) else held.encode()
        assert found == wanted


@given(st.dictionaries(st.integers(0, 2**31 - 1), OFFSETS), st.integers(0, 3), CREATED)
def test_an_id_is_read_as_it_was_written(offsets: dict[int, int], only: int, created: int) -> None:
    for each in (None, only):  # at an empty id a browser sends none
        assert id_of({}, each, created) == ""
    if offsets:
        assert position_of(id_of(offsets, None, created), None) == (offsets, created)
    event_id = id_of({only: 7} | offsets, only, created)
    assert position_of(event_id, only) == ({only: offsets.get(only, 7)}, created)


def test_an_id_names_the_log() -> None:
    assert id_of({0: 41}, 0, 0xBEEF) == "41@beef"
    assert id_of({0: 41, 2: 17}, None, 0xBEEF) == "0:41,2:17@beef"
    assert position_of("0:41,2:17", None) == ({0: 41, 2: 17}, 0)  # of an earlier version


@given(st.text(min_size=1) | st.from_regex(r"[-+ 0-9_]{1,25}") | st.just(str(2**63 - 1)))
def test_an_id_that_is_no_offset_is_refused(event_id: str) -> None:
    digits = event_id.isascii() and event_id.isdigit() and event_id == str(int(event_id))
    if event_id == "-1" or (digits and int(event_id) < 2**63 - 1):
        assert position_of(event_id, 0) == ({0: int(event_id)}, 0)
        return
    with pytest.raises(StreamReset, match="Last-Event-ID"):
        position_of(event_id, 0)


@pytest.mark.parametrize(
    "event_id",
    ["7", ",", "0:1,", ",0:1", "1:1,0:1", "0:1,0:2", "0:1 ,1:2", "0:01", f"0:{2**63 - 1}"],
)
def test_an_id_that_names_no_offsets_by_partition_is_refused(event_id: str) -> None:
    with pytest.raises(StreamReset, match="Last-Event-ID"):
        position_of(event_id, None)


@pytest.mark.parametrize(
    "log", ["@", "@0", "@01", "@-1", "@G", "@F", "@g", "@1@1", "@1 ", "@1\n", "@" + "1" * 5000]
)
def test_an_id_that_names_no_log_is_refused(log: str) -> None:
    for event_id, only in (("7", 7), ("7:7", None), ("", 7), ("", None)):
        with pytest.raises(StreamReset, match="Last-Event-ID"):
            position_of(event_id + log, only)


def test_what_only_the_browser_hears_is_no_event() -> None:
    parser = EventStreamParser()
    assert parser.feed(opening(2, "4") + HEARTBEAT) == []
    assert parser.last_event_id == "4"
    assert parser.comments == [""]
    assert parser.feed(mark("9")) == []
    assert parser.last_event_id == "9"
    assert parser.feed(opening(2, None)) == []
    assert parser.last_event_id == "9"


def test_a_failure_names_only_its_kind_and_can_make_the_browser_forget() -> None:
    error = StreamReset("10.0.0.3:9292 says otherwise", stream="orders", offset=5)
    parser = EventStreamParser("5")
    told = {"error": "StreamReset", "partition": 0, "offset": 5}
    [event] = parser.feed(failure(error, 0, error.offset).encode(""))
    assert event == Received("failure", f"{json.dumps(told)}", "")


@pytest.mark.parametrize("kind", ["two\nlines", "two\rlines"])
def test_a_type_of_several_lines_is_refused(kind: str) -> None:
    with pytest.raises(InvalidRequest, match="one line"):
        Event("x", kind).encode()


def test_a_lone_surrogate_in_an_event_is_escaped() -> None:
    data = json.dumps({"name": "\udcff"}, ensure_ascii=False)
    [event] = EventStreamParser().feed(Event(data).encode("0"))
    assert json.loads(event.data) == {"name": "\udcff"}
