"""The waits of messages in retry streams, though a clock is wrong."""

from __future__ import annotations

import pytest

from liftbridge_aio.model import Message
from liftbridge_aio.queue.core.moved_message import DUE_HEADER, hide_headers
from liftbridge_aio.queue.core.tier_clock import TierClock

HOUR = 3600.0
DAY = 1_750_000_000.0


def waiting(offset: int, stored: float, due: float) -> Message:
    headers = {DUE_HEADER: b"%d" % ((DAY + due) * 1000)}
    message = Message("s", 0, offset, b"", b"", int((DAY + stored) * 1e9), headers)
    hide_headers(message)
    return message


def test_a_message_waits_until_the_time_that_was_noted() -> None:
    clock = TierClock(60.0)
    message = waiting(0, 100.0, 160.0)
    assert clock.remaining(message, 7.0, DAY + 101.0) == pytest.approx(59.0)
    assert clock.remaining(message, 67.0, DAY + 161.0) <= 0


def test_a_message_of_a_mover_whose_clock_is_ahead_waits_a_tier() -> None:
    clock = TierClock(60.0)
    clock.remaining(waiting(0, 100.0, 160.0), 7.0, DAY + 100.0)
    ahead = waiting(1, 110.0, 170.0 + HOUR)
    assert clock.remaining(ahead, 18.0, DAY + 111.0) == pytest.approx(59.0)


def test_a_reader_whose_clock_is_behind_waits_a_tier_once() -> None:
    clock = TierClock(60.0)
    first, second = waiting(0, 100.0, 160.0), waiting(1, 101.0, 161.0)
    assert clock.remaining(first, 7.0, DAY - HOUR) == pytest.approx(60.0)
    assert clock.remaining(first, 67.0, DAY - HOUR + 60.0) == pytest.approx(0.0)
    assert clock.remaining(second, 67.0, DAY - HOUR + 60.0) == pytest.approx(1.0)


def test_a_server_whose_clock_was_set_back_does_not_end_waits() -> None:
    clock = TierClock(60.0)
    clock.remaining(waiting(0, HOUR, 160.0), 7.0, DAY + 100.0)
    later = waiting(1, 101.0, 161.0)
    assert clock.remaining(later, 8.0, DAY + 101.0) == pytest.approx(60.0)
