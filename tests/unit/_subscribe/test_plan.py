from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liftbridge_aio._subscribe.core.plan import ConsumerIdentity, ReadingPlan
from liftbridge_aio.errors import InvalidRequest
from liftbridge_aio.model import StartAt, StopAt

NOW = 1_800_000_000 * 10**9
DEFAULTS: dict[str, Any] = {
    "stream": "orders",
    "partition": 0,
    "start": StartAt.new_only(),
    "stop": None,
    "resubscribe_timeout": 30.0,
    "unpause": False,
    "from_isr_replica": False,
    "reverse": False,
    "timeout": 10.0,
    "now": NOW,
}
offsets = st.integers(0, 2**63 - 1)


def plan(**changes: Any) -> ReadingPlan:
    return ReadingPlan(**DEFAULTS | changes)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"stream": ""}, "stream name must not be empty"),
        ({"partition": -1}, "a partition must be from 0"),
        ({"reverse": True, "start": StartAt.time(1)}, "cannot start by time"),
        ({"reverse": True, "start": StartAt.ago(timedelta(hours=1))}, "cannot start by time"),
        ({"reverse": True, "stop": StopAt.latest()}, "cannot stop there"),
        ({"resubscribe_timeout": -1.0}, "resubscribe_timeout"),
        ({"resubscribe_timeout": math.nan}, "resubscribe_timeout"),
    ],
)
def test_what_cannot_be_meant_is_refused(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidRequest, match=problem):
        plan(**changes)


def test_a_timeout_that_is_no_duration_is_refused() -> None:
    with pytest.raises(TypeError, match="resubscribe_timeout"):
        plan(resubscribe_timeout="soon")


@given(offsets, offsets, st.booleans())
def test_a_stop_offset_must_lie_in_the_direction_of_the_reading(
    start: int, stop: int, reverse: bool
) -> None:
    ahead = stop <= start if reverse else stop >= start
    arguments = {"start": StartAt.offset(start), "stop": StopAt.offset(stop), "reverse": reverse}
    if ahead:
        plan(**arguments)
    else:
        with pytest.raises(InvalidRequest, match="lies before the start"):
            plan(**arguments)


@pytest.mark.parametrize("reverse", [False, True])
def test_a_stop_time_must_be_past(reverse: bool) -> None:
    plan(stop=StopAt.time(NOW), reverse=reverse)
    with pytest.raises(InvalidRequest, match="must lie in the past"):
        plan(stop=StopAt.time(NOW + 1), reverse=reverse)


def test_a_refusal_names_the_partition() -> None:
    with pytest.raises(InvalidRequest) as refusal:
        plan(partition=7, start=StartAt.offset(2), stop=StopAt.offset(1))
    assert (refusal.value.stream, refusal.value.partition) == ("orders", 7)


def test_members_of_a_group_read_from_the_leader() -> None:
    member = ConsumerIdentity("group", "me", 3)
    assert ReadingPlan(**DEFAULTS, consumer=member).consumer is member
    with pytest.raises(InvalidRequest, match="leader"):
        ReadingPlan(**DEFAULTS | {"from_isr_replica": True}, consumer=member)
