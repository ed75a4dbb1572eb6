"""Errors that nobody takes, what is left over, and memory that grows are seen."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import pytest

from chaos.alarms import listening
from chaos.leftovers import network_objects
from chaos.trend import trend
from liftbridge_aio.net.connection_pool import ConnectionPool


def _in_the_loop() -> None:
    nothing: list[int] = []
    asyncio.get_running_loop().call_soon(nothing.pop)


def _in_the_log() -> None:
    logging.getLogger("liftbridge_aio.net").error("a task failed")


@pytest.mark.parametrize("fail", [_in_the_loop, _in_the_log])
async def test_errors_that_nobody_takes_are_found(fail: Callable[[], None]) -> None:
    found: list[str] = []
    with listening(found):
        fail()
        async with asyncio.timeout(5.0):
            while not found:  # noqa: ASYNC110 - they are a list
                await asyncio.sleep(0.001)


def test_objects_of_the_network_that_are_left_are_seen() -> None:
    before = network_objects()
    left = ConnectionPool.__new__(ConnectionPool)
    assert "ConnectionPool" in (network_objects() - before)
    del left
    assert not network_objects() - before


def test_noise_is_flat_and_growth_is_not() -> None:
    noise = [(float(second), 50.0 + second % 3) for second in range(300)]
    assert trend(noise).flat
    growth = [(second, figure + second * 0.02) for second, figure in noise]
    assert not trend(growth).flat
    assert trend(growth).slope == pytest.approx(0.02, rel=0.05)
