from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from liftbridge_aio.stan.core.start import StartAt
from liftbridge_aio.wire.stan import StartPosition

NOW = 1_700_000_000 * 10**9
nanoseconds = st.integers(0, 2 * NOW)


@given(nanoseconds, nanoseconds)
def test_a_time_is_an_age_on_the_wire_and_never_in_the_future(moment: int, now: int) -> None:
    fields = StartAt.time(moment).request_fields(now)
    assert fields == {
        "start_position": StartPosition.TIME_DELTA_START,
        "start_time_delta": max(now - moment, 0),
    }


@given(st.datetimes(datetime(1970, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC)))  # noqa: DTZ001 - the bounds are naive
def test_a_datetime_is_exact_to_the_microsecond(moment: datetime) -> None:
    passed = moment - datetime(1970, 1, 1, tzinfo=UTC)
    assert StartAt.time(moment).value == passed // timedelta(microseconds=1) * 1000


@given(st.timedeltas(timedelta(0), timedelta(days=3650)), nanoseconds)
def test_an_age_is_counted_from_the_subscribe(age: timedelta, now: int) -> None:
    fields = StartAt.ago(age).request_fields(now)
    assert abs(fields["start_time_delta"] - age / timedelta(microseconds=1) * 1000) < 1000


@given(nanoseconds)
def test_what_a_subscription_without_messages_starts_at_again(elapsed: int) -> None:
    for start in (StartAt.new_only(), StartAt.latest()):
        assert start.after(elapsed) == StartAt.age(elapsed)
    for start in (StartAt.earliest(), StartAt.sequence(5), StartAt.time(NOW)):
        assert start.after(elapsed) is start
    assert StartAt.ago(1).after(elapsed) == StartAt.age(10**9 + elapsed)
