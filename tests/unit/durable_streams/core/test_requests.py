from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liftbridge_aio.durable_streams.core.requests import (
    Live,
    Read,
    RequestRefused,
    content_of,
    parse_append,
    parse_creation,
    parse_read,
    prefix_of,
)
from liftbridge_aio.durable_streams.core.stream_log import Append, ProducerTuple

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@given(st.lists(st.lists(JSON, min_size=1, max_size=4), min_size=1, max_size=4), st.data())
def test_json_values_are_stored_so_that_joining_them_is_an_array(
    appends: list[list[object]], data: st.DataObject
) -> None:
    spaced = data.draw(st.sampled_from([None, 2]))
    stored = [
        content_of(json.dumps(each, indent=spaced).encode(), "application/json") for each in appends
    ]
    assert json.loads(b"[" + b",".join(stored) + b"]") == [x for each in appends for x in each]


@given(st.lists(JSON, min_size=1, max_size=5), st.data())
def test_the_first_values_of_a_message_are_cut_off(
    values: list[object], data: st.DataObject
) -> None:
    count = data.draw(st.integers(0, len(values)))
    spaced = data.draw(st.sampled_from([None, 2]))
    stored = content_of(json.dumps(values, indent=spaced).encode(), "application/json")
    prefix = prefix_of(stored, count, "application/json")
    assert json.loads(b"[" + prefix + b"]") == values[:count]
    with pytest.raises(RequestRefused):
        prefix_of(stored, len(values) + 1, "application/json")


@pytest.mark.parametrize(
    "body", [b"{", b"[1,]", b"NaN", b"[Infinity]", b"\xff", b"[]", b" ", b"[" * 9999]
)
def test_what_is_no_json_is_refused(body: bytes) -> None:
    with pytest.raises(RequestRefused) as raised:
        content_of(body, "application/json")
    assert raised.value.status == 400


def test_an_empty_array_may_create_a_stream() -> None:
    assert content_of(b"[ ]", "application/json", may_be_empty=True) == b""


def test_an_array_in_an_array_stays_one() -> None:
    assert content_of(b"[[1,2]]", "application/json") == b"[1,2]"
    assert content_of(b"[1]", "text/plain") == b"[1]"


def test_queries_are_read() -> None:
    assert parse_read([]) == Read("-1", Live.NO, None)
    query = [("offset", "now"), ("live", "sse"), ("cursor", "7"), ("tenant", "x")]
    assert parse_read(query) == Read("now", Live.SSE, "7")


@pytest.mark.parametrize(
    "query",
    [
        *([("offset", "")], [("offset", "1"), ("offset", "1")], [("offset", "a,b")]),
        *([("offset", "a\0b")], [("live", "sse")], [("offset", "-1"), ("live", "tail")]),
    ],
)
def test_queries_that_make_no_sense_are_refused(query: list[tuple[str, str]]) -> None:
    with pytest.raises(RequestRefused) as raised:
        parse_read(query)
    assert raised.value.status == 400


@pytest.mark.parametrize(
    "headers",
    [
        {"Stream-TTL": "01"},
        {"Stream-TTL": "1.5"},
        {"Stream-TTL": ""},
        {"Stream-Expires-At": "tomorrow"},
        {"Stream-Expires-At": "2026-11-25"},
        {"Stream-TTL": "1", "Stream-Expires-At": "2026-11-25T00:00:00Z"},
        {"Stream-Fork-Offset": "0"},
        {"Stream-Forked-From": "/a", "Stream-Fork-Sub-Offset": "1"},
        {"Stream-Forked-From": "/a", "Stream-Fork-Offset": "a,b"},
    ],
)
def test_creations_that_make_no_sense_are_refused(headers: dict[str, str]) -> None:
    with pytest.raises(RequestRefused) as raised:
        parse_creation(headers)
    assert raised.value.status == 400


def test_a_time_with_an_offset_is_read() -> None:
    found = parse_creation({"Stream-Expires-At": "1970-01-01T01:00:10+01:00"})
    assert (found.expiry, found.expires_at) == (10.0, "1970-01-01T01:00:10+01:00")


def test_appends_are_read() -> None:
    headers = {"Producer-Id": "p", "Producer-Epoch": "1", "Producer-Seq": "2", "Stream-Seq": "x"}
    wanted = Append(b"", ProducerTuple("p", 1, 2), "x", closes=True)
    assert parse_append(headers | {"Stream-Closed": "TRUE"}) == wanted


@pytest.mark.parametrize("missing", ["Producer-Id", "Producer-Epoch", "Producer-Seq"])
def test_a_producer_says_all_three_things(missing: str) -> None:
    headers = {"Producer-Id": "p", "Producer-Epoch": "1", "Producer-Seq": "2"}
    for broken in ({missing: ""}, None):
        rest = {name: value for name, value in headers.items() if name != missing}
        with pytest.raises(RequestRefused):
            parse_append(rest | (broken or {}))
