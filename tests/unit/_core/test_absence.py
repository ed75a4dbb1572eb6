from __future__ import annotations

from itertools import accumulate
from math import inf
from typing import Literal, NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from liftbridge_aio._core.absence import Absence, Incarnation

TIMEOUT = 5.0


class Said(NamedTuple):
    """Action of one of three servers, and the time since the event before."""

    after: float
    server: int
    what: Literal["denied", "restarted", "known", "unreachable"]


events = st.lists(
    st.builds(
        Said,
        st.sampled_from([0.0, 0.1, 1.0, 2.5, 5.0]),
        st.integers(0, 2),
        st.sampled_from(["denied"] * 6 + ["restarted", "known", "unreachable"]),
    ),
    max_size=30,
)


@given(events)
def test_gone_is_what_one_server_denies_for_long_enough_without_a_break(said: list[Said]) -> None:
    """Held against a history that is searched anew each time."""
    absence = Absence(TIMEOUT)
    times = list(accumulate((event.after for event in said), initial=0.0))[1:]
    started = [0.0, 0.0, 0.0]
    for number, (now, event) in enumerate(zip(times, said, strict=True)):
        match event.what:
            case "denied":
                by = Incarnation(str(event.server), started[event.server])
                absence.denied(now, by)
                first = min(
                    at
                    for back, at in enumerate(times[: number + 1])
                    if said[back][1:] == (event.server, "denied")
                    and not any(
                        each.what in {"known", "unreachable"}
                        or each[1:] == (event.server, "restarted")
                        for each in said[back:number]
                    )
                )
                assert absence.seconds == now - first
                assert absence.remaining == TIMEOUT - (now - first)
                assert absence.confirmed is (now - first >= TIMEOUT)
            case "restarted":
                started[event.server] = now + number / 1024  # no two starts are the same
            case "known":
                absence.known()
                assert not absence.interrupted
            case "unreachable":
                absence.interrupt()
                assert absence.interrupted
        if event.what in {"known", "unreachable"}:
            assert absence.remaining == inf
            assert not absence.confirmed
            assert absence.denied_by is None


@given(st.lists(st.floats(0.0, 4.9), min_size=1, max_size=20))
def test_a_server_that_is_restarted_more_often_than_that_confirms_nothing(
    lives: list[float],
) -> None:
    """However long that goes on, and however often it says so."""
    absence, now = Absence(TIMEOUT), 0.0
    for life in lives:
        server = Incarnation("a", now)
        absence.denied(now + 0.01, server)
        now += life + 0.05
        absence.denied(now, server)
        assert not absence.confirmed
        assert not absence.plausible or now - server.since >= TIMEOUT
        now += 0.01


def test_a_server_that_has_been_up_for_long_is_believed_the_second_time() -> None:
    absence = Absence(TIMEOUT)

    def denied(now: float, started: float) -> bool:
        absence.denied(now, Incarnation("a", started))
        return absence.plausible

    assert [denied(now, 100.0) for now in (200.0, 200.1)] == [False, True]
    assert not absence.confirmed
    assert [denied(now, 200.2) for now in (200.3, 200.4, 205.3)] == [False, False, True]
    assert absence.interrupted


def test_no_patience_at_all_believes_the_first_denial() -> None:
    absence = Absence(0.0)
    absence.denied(1.0, Incarnation("a", 1.0))
    assert absence.confirmed


def test_the_time_that_is_left_is_enough() -> None:
    """A caller that waits for what remains and asks again has its answer."""
    absence, server = Absence(TIMEOUT), Incarnation("a", 0.0)
    for now in (0.3, 1.7, 2.1):
        absence.denied(now, server)
    absence.denied(2.1 + absence.remaining + 1e-6, server)
    assert absence.confirmed
