"""The retry streams that messages wait in."""

from __future__ import annotations

from datetime import timedelta

import pytest

from liftbridge_aio.queue.core.moved_message import tier_for


@pytest.mark.parametrize(
    ("delay", "tier"),
    [(0.1, 0.5), (0.5, 0.5), (0.5000000000000009, 0.5), (0.6, 3.0), (3.0, 3.0), (9.0, 3.0)],
)
def test_a_delay_waits_in_the_shortest_tier_that_is_long_enough(delay: float, tier: float) -> None:
    assert tier_for(delay, (0.5, 3.0)) == tier


def test_the_rest_until_a_deadline_is_no_longer_than_the_delay() -> None:
    """Though its float may be."""
    now = timedelta(days=365).total_seconds()
    for delay in (0.1, 0.5, 2.5):
        assert tier_for((now + delay) - now, (delay, 100.0)) == delay
