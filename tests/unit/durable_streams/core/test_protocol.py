"""Offsets are opaque, values are encoded as their content type wants, statuses have a meaning."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from math import inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liftbridge_aio.durable_streams import errors
from liftbridge_aio.durable_streams.core import caching, parsing, protocol
from liftbridge_aio.durable_streams.core.status_errors import refusal
from liftbridge_aio.errors import InvalidRequest, MalformedData, WrongType

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)


@pytest.mark.parametrize(
    "offset", [protocol.START, protocol.NOW, "0000_0001", "a b", "é", "x" * 256]
)
def test_offsets_are_opaque(offset: str) -> None:
    protocol.check_offset(offset)


@pytest.mark.parametrize("offset", ["", "a,b", "a&b", "a=b", "a?b", "a/b", "a\n", "\0", "x" * 257])
def test_no_server_has_such_an_offset(offset: str) -> None:
    with pytest.raises(InvalidRequest):
        protocol.check_offset(offset)


@pytest.mark.parametrize("offset", [None, 7, b"1"])
def test_an_offset_is_text(offset: Any) -> None:
    with pytest.raises(WrongType):
        protocol.check_offset(offset)


@given(st.lists(JSON, min_size=1, max_size=4))
def test_json_values_keep_their_boundaries(values: list[Any]) -> None:
    kind = "Application/JSON; charset=utf-8"
    body = protocol.join_values([protocol.encoder(kind)(each) for each in values], kind)
    assert protocol.parse_items(body) == values == json.loads(body)


def test_bytes_for_json_are_one_encoded_value() -> None:
    body = protocol.join_values(
        [protocol.encoder("application/json")(b'{"n":1}')] * 2, "application/json"
    )
    assert protocol.parse_items(body) == [{"n": 1}, {"n": 1}]


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (float("nan"), "application/json"),
        (b" ", "application/json"),
        (b"", "text/plain"),
        ("", "text/plain"),
        ("\ud800", "text/plain"),
        (b"", "application/octet-stream"),
    ],
)
def test_invalid_values_are_refused(value: Any, kind: str) -> None:
    with pytest.raises(InvalidRequest):
        protocol.encoder(kind)(value)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("text", "application/octet-stream"),
        (7, "text/plain"),
        (None, "x/y"),
        (object(), "application/json"),
    ],
)
def test_values_of_a_wrong_type_are_refused(value: Any, kind: str) -> None:
    with pytest.raises(WrongType):
        protocol.encoder(kind)(value)


def test_text_and_bytes_are_sent_as_they_are() -> None:
    assert protocol.encoder("text/html; charset=utf-8")("é") == "é".encode()
    assert protocol.encoder("text/plain")(bytearray(b"ab")) == b"ab"
    assert protocol.join_values([b"a", b"b"], "text/plain") == b"ab"


@pytest.mark.parametrize("body", [b"{", b"{}", b"7", b"\xff", b"[" * 100_000])
def test_a_body_that_is_no_array_of_json_is_refused(body: bytes) -> None:
    with pytest.raises(MalformedData):
        protocol.parse_items(body)


@pytest.mark.parametrize(
    ("value", "number"),
    [
        ("0", 0),
        ("17", 17),
        ("017", None),
        ("+1", None),
        ("1.0", None),
        ("", None),
        (None, None),
        ("\u0661", None),
        (str(2**53 - 1), 2**53 - 1),
        (str(2**53), None),
        ("9" * 5_000, None),
    ],
)
def test_numbers_in_headers_are_decimal(value: str | None, number: int | None) -> None:
    assert parsing.parse_integer(value) == number


@pytest.mark.parametrize(
    ("value", "wait"),
    [
        ("7", 7.0),
        ("007", 7.0),
        ("9" * 5_000, inf),
        ("Thu, 01 Jan 2026 00:00:09 GMT", 9.0),
        ("Wed, 31 Dec 2025 23:00:00 GMT", 0.0),
        ("Mon, 01 Jan 0000 00:00:00 +9999", 0.0),
        ("Fri, 31 Dec 99999999999 23:59:59 GMT", 0.0),
        ("soon", 0.0),
        (None, 0.0),
    ],
)
def test_a_retry_after_is_a_bounded_wait(value: str | None, wait: float) -> None:
    assert parsing.parse_retry_after(value, datetime(2026, 1, 1, tzinfo=UTC)) == wait


@given(st.text() | st.from_regex(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]{8,12}(Z|[+-][0-9:]{5})"))
def test_every_parser_takes_any_text(text: str) -> None:
    for parse in (parsing.parse_integer, parsing.is_offset, parsing.is_cursor, parsing.parse_time):
        parse(text)
    parsing.parse_retry_after(text, datetime(2026, 1, 1, tzinfo=UTC))


@pytest.mark.parametrize(
    ("value", "is_true"),
    [("true", True), ("TRUE", True), ("yes", False), ("1", False), ("", False), (None, False)],
)
def test_only_true_is_true(value: str | None, is_true: bool) -> None:
    assert protocol.is_true(value) is is_true


# Caches

_EPOCH = 1_728_432_000  # 2024-10-09


@pytest.mark.parametrize(
    ("given_cursor", "fraction", "cursor"),
    [
        (None, 0.0, "5"),
        ("4", 0.0, "5"),
        ("rubbish", 0.9, "5"),
        ("5", 0.0, "6"),
        ("5", 0.999, "184"),
        ("9", 0.0, "10"),
    ],
)
def test_cursors_go_forwards(given_cursor: str | None, fraction: float, cursor: str) -> None:
    assert caching.next_cursor(_EPOCH + 119, given_cursor, fraction) == cursor


def test_entity_tags_change_when_the_stream_is_closed() -> None:
    tag = caching.entity_tag("s", "1", "2", closed=False)
    closed = caching.entity_tag("s", "1", "2", closed=True)
    assert caching.matches(f'"x", W/{tag}', tag)
    assert caching.matches("*", tag)
    assert not caching.matches(closed, tag)
    assert not caching.matches(None, tag)


# Statuses


@pytest.mark.parametrize(
    ("method", "status", "sent", "got", "kind"),
    [
        ("GET", 400, {}, {}, errors.InvalidOffset),
        ("PUT", 400, {}, {}, errors.BadRequest),
        ("POST", 401, {}, {}, errors.UnexpectedStatus),
        ("POST", 403, {}, {"Producer-Epoch": "7"}, errors.StaleEpoch),
        ("POST", 403, {}, {}, errors.UnexpectedStatus),
        ("GET", 404, {}, {}, errors.NoStream),
        ("POST", 405, {}, {}, errors.NotSupported),
        ("PUT", 409, {}, {}, errors.Conflict),
        ("POST", 409, {}, {"Stream-Closed": "True", "Producer-Expected-Seq": "1"},
         errors.StreamClosed),
        ("POST", 409, {"Stream-Seq": "7"}, {}, errors.SequenceConflict),
        ("POST", 409, {}, {"Producer-Expected-Seq": "1"}, errors.SequenceGap),
        ("GET", 410, {}, {}, errors.Gone),
        ("POST", 413, {}, {}, errors.TooLarge),
        ("GET", 500, {}, {}, errors.UnexpectedStatus),
        ("POST", 501, {}, {}, errors.NotSupported),
    ],
)  # fmt: skip
def test_each_status_has_its_error(
    method: str,
    status: int,
    sent: dict[str, str],
    got: dict[str, str],
    kind: type[errors.Refused],
) -> None:
    error = refusal(method, "http://h/s", sent, status, got, " No \n way " + "!" * 999)
    assert type(error) is kind
    assert error.status == status
    assert f"{method} http://h/s was refused with {status} (No way !!!" in str(error)
    assert len(error.message) < 300


def test_refusals_of_producers_have_the_servers_numbers() -> None:
    stale = refusal("POST", "u", {}, 403, {"Producer-Epoch": "7"}, "")
    assert isinstance(stale, errors.StaleEpoch)
    assert stale.current_epoch == 7
    gap = refusal(
        "POST", "u", {}, 409, {"Producer-Expected-Seq": "1", "Producer-Received-Seq": "3"}, ""
    )
    assert isinstance(gap, errors.SequenceGap)
    assert (gap.expected, gap.received) == (1, 3)
    closed = refusal("POST", "u", {}, 409, {"Stream-Closed": "true", "Stream-Next-Offset": "9"}, "")
    assert isinstance(closed, errors.StreamClosed)
    assert closed.final_offset == "9"


def test_the_conformance_protocol_has_each_code() -> None:
    codes = {
        each.conformance_code
        for each in vars(errors).values()
        if isinstance(each, type) and issubclass(each, errors.DurableStreamError)
    }
    assert codes == {
        "NETWORK_ERROR", "TIMEOUT", "CONFLICT", "NOT_FOUND", "SEQUENCE_CONFLICT", "STREAM_CLOSED",
        "INVALID_OFFSET", "UNEXPECTED_STATUS", "PARSE_ERROR", "INTERNAL_ERROR", "NOT_SUPPORTED",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("remaining", "control"),
    [
        (None, "public, max-age=60, stale-while-revalidate=300"),
        (10_000.0, "public, max-age=60, stale-while-revalidate=300"),
        (100.5, "public, max-age=60, stale-while-revalidate=40"),
        (60.0, "public, max-age=60"),
        (2.9, "public, max-age=2"),
        (0.9, "no-store"),
        (-5.0, "no-store"),
    ],
)
def test_caches_forget_a_stream_before_it_expires(remaining: float | None, control: str) -> None:
    assert caching.cache_control("public", remaining) == control
