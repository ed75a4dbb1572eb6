"""Events arrive in a page as they were meant, by the rules that browsers follow."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import example, given
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
from support.web.event_source import EventStreamParser, Received

OFFSETS = st.integers(-1, 2**63 - 2)


def message(value: bytes, offset: int = 0, key: bytes = b"") -> Message:
    return Message("orders", 0, offset, key, value, 1, {"kind": b"\xff"})


def arrived(text: str) -> str:
    """Return the text as it arrives: every line end is a line feed."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


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


def test_an_id_names_the_log() -> None:
    assert id_of({0: 41}, 0, 0xBEEF) == "41@beef"
    assert id_of({0: 41, 2: 17}, None, 0xBEEF) == "0:41,2:17@beef"
    assert position_of("0:41,2:17", None) == ({0: 41, 2: 17}, 0)  # of an earlier version


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
