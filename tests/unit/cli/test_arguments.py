"""The parsing of arguments."""

from __future__ import annotations

import contextlib
import re
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liftbridge_aio.cli.arguments import (
    BadArgument,
    encode_argument,
    parse_duration,
    parse_headers,
    parse_start,
    parse_stop,
)
from liftbridge_aio.model import StartAt, StopAt


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("1.5", 1.5), ("500ms", 0.5), ("90s", 90), ("1h30m", 5400), ("7d", 604_800)],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "m", "-5m", "5 minutes", "1h 30m", "nan", "inf", "1e9", "5x"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(BadArgument, match="is not a duration"):
        parse_duration(text)


NINE = datetime(2026, 11, 21, 9, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("new", StartAt.new_only()),
        ("Latest", StartAt.latest()),
        ("earliest", StartAt.earliest()),
        ("0", StartAt.offset(0)),
        (str(2**63 - 1), StartAt.offset(2**63 - 1)),
        ("2026-11-21T09:00Z", StartAt.time(NINE)),
        ("2026-11-21 10:00+01:00", StartAt.time(NINE)),
        ("-5m", StartAt.ago(timedelta(minutes=5))),
    ],
)
def test_starts(text: str, start: StartAt) -> None:
    assert parse_start(text) == start


@pytest.mark.parametrize(
    ("text", "stop"),
    [
        ("latest", StopAt.latest()),
        ("7", StopAt.offset(7)),
        ("2026-11-21T09:00:00Z", StopAt.time(NINE)),
    ],
)
def test_stops(text: str, stop: StopAt) -> None:
    assert parse_stop(text) == stop


@given(st.text(max_size=20))
def test_any_other_position_is_a_bad_argument_and_nothing_else(text: str) -> None:
    for parse in (parse_start, parse_stop):
        with contextlib.suppress(BadArgument):
            assert isinstance(parse(text), (StartAt, StopAt))


@pytest.mark.parametrize(
    "text", ["2026-11-21T09:00", "2026-11-21", "1960-01-01T00:00Z", str(2**63), "-1e400d", "²"]
)
def test_positions_that_make_no_sense(text: str) -> None:
    with pytest.raises(BadArgument):
        parse_start(text)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("2026-11-21", "2026-11-21T00:00Z"),
        ("2026-11-21Z", "2026-11-21T00:00Z"),
        ("2026-11-21T09:00", "add Z for UTC"),
        ("9999-12-31T23:59-05:00", "'9999-12-31T23:59-05:00' is after 2262"),
        ("1960-01-01T00:00Z", "before 1970"),
    ],
)
def test_what_is_no_moment_is_told_in_the_words_of_the_user(text: str, what: str) -> None:
    for parse in (parse_start, parse_stop):
        with pytest.raises(BadArgument, match=re.escape(what)):
            parse(text)


def test_a_time_span_beyond_the_calendar_is_refused() -> None:
    with pytest.raises(BadArgument, match="earliest possible time"):
        parse_start(f"-{10**18}w")


def test_headers_keep_further_equals_signs_and_the_last_one_wins() -> None:
    assert parse_headers(["a=1", "b=x=y", "a=", "ü=ß"]) == {
        "a": b"",
        "b": b"x=y",
        "ü": "ß".encode(),
    }
    assert parse_headers([]) is None


@pytest.mark.parametrize("pair", ["", "a", "=b"])
def test_what_is_no_header(pair: str) -> None:
    with pytest.raises(BadArgument, match="name=value"):
        parse_headers([pair])


@given(st.binary())
def test_arguments_give_back_the_bytes_that_were_typed(data: bytes) -> None:
    assert encode_argument(data.decode("utf-8", "surrogateescape")) == data
