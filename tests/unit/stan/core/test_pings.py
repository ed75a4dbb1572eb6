from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from liftbridge_aio.stan.core.pings import PingMonitor


@given(st.integers(2, 5), st.lists(st.booleans(), max_size=30))
def test_any_answer_counts_for_all_pings(limit: int, answers: list[bool]) -> None:
    pings = PingMonitor(limit)
    unanswered = 0
    for answered in answers:
        unanswered += 1
        assert pings.ping() is (unanswered <= limit)
        if answered:
            pings.answered()
            unanswered = 0
        assert pings.out == unanswered
