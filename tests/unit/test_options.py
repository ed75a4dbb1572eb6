from __future__ import annotations

import dataclasses
import math
from dataclasses import replace
from datetime import timedelta
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liftbridge_aio.errors import InvalidRequest, WrongType
from liftbridge_aio.options import ClientOptions, StreamOptions, milliseconds, seconds
from liftbridge_aio.telemetry import Hook, Lost

POSITIVE = (
    "connect_timeout",
    "call_timeout",
    "ack_timeout",
    "publish_timeout",
    "resubscribe_timeout",
    "health_interval",
    "health_timeout",
)
NOT_NEGATIVE = ("close_timeout", "not_found_timeout")
LIMITS = (
    "max_in_flight",
    "max_in_flight_bytes",
    "max_buffered_bytes",
    "max_message_bytes",
    "max_receive_bytes",
)
STREAM_DURATIONS = ("retention_max_age", "segment_max_age", "auto_pause_time", "cleaner_interval")
LONGEST = (2**63 - 1) // 10**9


def client_options(**values: Any) -> ClientOptions:
    return ClientOptions(**values)


def stream_options(**values: Any) -> StreamOptions:
    return StreamOptions(**values)


# Durations


@pytest.mark.parametrize(
    ("duration", "expected"),
    [(0, 0.0), (1.5, 1.5), (timedelta(minutes=1), 60.0), (math.inf, math.inf)],
)
def test_durations_are_numbers_of_seconds_or_timedeltas(duration: Any, expected: float) -> None:
    assert seconds(duration) == expected


@pytest.mark.parametrize("duration", [-0.001, -math.inf, math.nan, timedelta(seconds=-1)])
def test_durations_that_are_no_length_of_time_are_refused(duration: Any) -> None:
    with pytest.raises(InvalidRequest, match="some_timeout"):
        seconds(duration, "some_timeout")


@pytest.mark.parametrize("duration", ["5", None, b""])
def test_durations_of_other_types_are_refused(duration: Any) -> None:
    with pytest.raises(TypeError, match="some_timeout"):
        seconds(duration, "some_timeout")


@given(st.integers(0, 10**12))
def test_milliseconds_are_exact(count: int) -> None:
    assert milliseconds(count / 1000) == count
    assert milliseconds(timedelta(milliseconds=count)) == count


# The client's


def test_every_field_of_the_client_is_in_these_tests() -> None:
    checked = {*POSITIVE, *NOT_NEGATIVE, *LIMITS}
    others = {"backoff", "partitioner", "hook", "interceptors", "address_map", "data_lane", "tls"}
    assert {field.name for field in dataclasses.fields(ClientOptions)} == checked | others


def test_the_defaults_are_those_that_are_promised() -> None:
    options = ClientOptions()
    assert (options.connect_timeout, options.call_timeout, options.ack_timeout) == (5, 10, 5)
    assert (options.publish_timeout, options.resubscribe_timeout, options.close_timeout) == (
        30,
        None,
        5,
    )
    assert (options.max_in_flight, options.max_in_flight_bytes) == (16_384, 64 * 2**20)
    assert seconds(options.health_interval) + seconds(options.health_timeout) < 15
    assert (options.backoff.initial, options.backoff.maximum) == (0.05, 2.0)


@pytest.mark.parametrize("name", POSITIVE)
@pytest.mark.parametrize("value", [0, -1, math.nan, timedelta(0)])
def test_timeouts_must_be_longer_than_nothing(name: str, value: Any) -> None:
    with pytest.raises(InvalidRequest, match=name):
        client_options(**{name: value})


@pytest.mark.parametrize("name", NOT_NEGATIVE)
def test_some_timeouts_may_be_nothing(name: str) -> None:
    assert getattr(client_options(**{name: 0}), name) == 0
    with pytest.raises(InvalidRequest, match=name):
        client_options(**{name: -1})


@pytest.mark.parametrize("name", LIMITS)
@pytest.mark.parametrize("value", [0, -1, 2**63])
def test_limits_must_be_in_range(name: str, value: int) -> None:
    with pytest.raises(InvalidRequest, match=name):
        client_options(**{name: value})


@pytest.mark.parametrize("name", LIMITS)
@pytest.mark.parametrize("value", [1.0, True, "1", None])
def test_limits_must_be_whole_numbers(name: str, value: Any) -> None:
    with pytest.raises(TypeError, match=name):
        client_options(**{name: value})


def test_only_the_resubscribe_timeout_may_be_none() -> None:
    assert ClientOptions(resubscribe_timeout=None).resubscribe_timeout is None
    for name in {*POSITIVE, *NOT_NEGATIVE} - {"resubscribe_timeout"}:
        with pytest.raises(TypeError, match=name):
            client_options(**{name: None})


# From the environment


def test_the_environment_is_read() -> None:
    options = ClientOptions.from_env(
        {
            "LIFTBRIDGE_CALL_TIMEOUT": "2.5",
            "LIFTBRIDGE_RESUBSCRIBE_TIMEOUT": "none",
            "LIFTBRIDGE_MAX_IN_FLIGHT": "7",
            "LIFTBRIDGE_HOOK": "ignored",
            "CONNECT_TIMEOUT": "ignored",
        }
    )
    assert options == ClientOptions(call_timeout=2.5, resubscribe_timeout=None, max_in_flight=7)


def test_every_number_can_be_set_in_the_environment() -> None:
    names = (*POSITIVE, *NOT_NEGATIVE, *LIMITS)
    options = ClientOptions.from_env({f"LIFTBRIDGE_{name.upper()}": "3" for name in names})
    assert options == client_options(**dict.fromkeys(names, 3))


@pytest.mark.parametrize(
    ("text", "chosen"), [("0", False), ("false", False), ("1", True), (" True ", True)]
)
def test_the_data_lane_can_be_switched_off_in_the_environment(text: str, chosen: bool) -> None:
    assert ClientOptions.from_env({"LIFTBRIDGE_DATA_LANE": text}).data_lane is chosen


def test_the_data_lane_is_a_matter_of_yes_or_no() -> None:
    with pytest.raises(TypeError, match="data_lane"):
        client_options(data_lane="no")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("call_timeout", "soon"),
        ("call_timeout", "none"),
        ("call_timeout", "nan"),
        ("call_timeout", "0"),
        ("max_in_flight", "1.5"),
        ("max_in_flight", "none"),
        ("max_in_flight", ""),
        ("max_in_flight", "0"),
        ("data_lane", "2"),
    ],
)
def test_bad_values_in_the_environment_are_named(name: str, text: str) -> None:
    variable = f"LIFTBRIDGE_{name.upper()}"
    with pytest.raises(InvalidRequest, match=f"(?i){name}"):
        ClientOptions.from_env({variable: text})


# A stream's


def test_nothing_given_leaves_everything_to_the_server() -> None:
    assert set(dataclasses.asdict(StreamOptions()).values()) == {None}


@pytest.mark.parametrize(
    "name",
    [
        *("retention_max_bytes", "retention_max_messages", "retention_max_age"),
        *("segment_max_age", "auto_pause_time"),
    ],
)
def test_zero_is_kept_and_is_not_none(name: str) -> None:
    assert getattr(stream_options(**{name: 0}), name) == 0


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("retention_max_bytes", -1),
        ("retention_max_bytes", 2**63),
        ("retention_max_messages", -1),
        ("retention_max_messages", 2**63),
        ("segment_max_bytes", 0),
        ("segment_max_bytes", 2**63),
        ("compact_max_goroutines", 0),
        ("compact_max_goroutines", 2**31),
        ("min_isr", 0),
        ("min_isr", 2**31),
        ("cleaner_interval", 0),
    ],
)
def test_what_a_server_cannot_take_is_refused(name: str, value: int) -> None:
    with pytest.raises(InvalidRequest, match=name):
        stream_options(**{name: value})


@pytest.mark.parametrize("name", STREAM_DURATIONS)
@pytest.mark.parametrize(
    "value", [-1, 0.0009, timedelta(microseconds=999), math.nan, math.inf, LONGEST + 2048]
)
def test_durations_that_the_wire_would_turn_into_others_are_refused(name: str, value: Any) -> None:
    with pytest.raises(InvalidRequest, match=name):
        stream_options(**{name: value})


@pytest.mark.parametrize("name", STREAM_DURATIONS)
@pytest.mark.parametrize("value", [0.001, timedelta(milliseconds=1), LONGEST])
def test_the_shortest_and_the_longest_durations_fit(name: str, value: Any) -> None:
    options = stream_options(**{name: value})
    assert 1 <= milliseconds(getattr(options, name)) <= (2**63 - 1) // 10**6


@pytest.mark.parametrize("name", ["retention_max_bytes", "min_isr"])
def test_numbers_of_a_stream_must_be_whole(name: str) -> None:
    with pytest.raises(TypeError, match=name):
        stream_options(**{name: 1.0})


class AsyncHook(Hook):
    async def lost(self, event: Lost) -> None:  # type: ignore[override]
        """Never awaited by anybody."""


class NoMethod:
    lost = 5


@pytest.mark.parametrize(
    ("hook", "text"),
    [
        (5, "not 5"),
        (None, "not None"),
        (object(), "subclass of Hook"),
        ("hook", "not 'hook'"),
        (Hook, r"Hook\(\)"),
        (AsyncHook(), "lost .* is async def"),
        (NoMethod(), "is a method, not 5"),
        ([Hook(), 5], "not 5"),
        ([Hook], r"Hook\(\)"),
    ],
)
def test_what_is_no_hook_is_refused(hook: Any, text: str) -> None:
    with pytest.raises(WrongType, match=text):
        ClientOptions(hook=hook)


def test_a_hook_may_be_one_or_several() -> None:
    class Lean:
        """A hook that does not come from Hook."""

        def lost(self, event: Lost) -> None: ...

    one, lean = Hook(), cast("Hook", Lean())
    assert ClientOptions(hook=one).hook is one
    assert ClientOptions(hook=lean).hook is lean
    hooks = [one, lean]
    options = ClientOptions(hook=hooks)
    hooks.clear()
    assert options.hook == (one, lean)
    assert replace(options, call_timeout=1).hook == (one, lean)
