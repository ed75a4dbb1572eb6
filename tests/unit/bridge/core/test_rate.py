"""The rate of copying."""

from __future__ import annotations

from liftbridge_aio.bridge.core.rate import Rate


def test_the_rate_is_that_of_the_last_ten_seconds() -> None:
    rate = Rate(100.0)
    assert rate.per_second(0, 100.0) == 0
    for second in range(1, 21):
        rate.note(10 * second, 100.0 + second)
    assert rate.per_second(200, 120.0) == 10
    assert rate.per_second(200, 125.0) == 5
    assert rate.per_second(200, 140.0) == 0
