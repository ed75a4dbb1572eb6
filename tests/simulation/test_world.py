"""Seeds of the simulated world: everybody works again after faults, and nothing is lost."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import subprocess
import sys
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from liftbridge_aio.testing.simulation.world import Stuck, World

from .campaign import Run, begin_job, simulate

pytestmark = pytest.mark.virtual_time

SEEDS: Final = int(os.environ.get("LIFTBRIDGE_SEEDS", "100"))
FOUND: Final = (10134, 10269)
"""Seeds with which longer campaigns have found faults."""
FAULTS: Final = 40.0
"""Simulated seconds of faults, after which there are 10 to 40 until all have recovered."""


@pytest.fixture(scope="module", autouse=True)
def _many_runs() -> Iterator[None]:
    """Run them as in a campaign: nothing is logged, garbage is collected seldom."""
    threshold = gc.get_threshold()
    begin_job()
    yield
    logging.disable(logging.NOTSET)
    gc.set_threshold(*threshold)


@pytest.mark.parametrize("seed", range(1, SEEDS + 1))
def test_everybody_works_again_and_nothing_is_lost(seed: int) -> None:
    result = simulate(Run(seed, FAULTS))
    assert not result.errors, f"{result}\nrepeat it: {result.run.command}"
    assert result.published


@pytest.mark.parametrize("seed", FOUND)
def test_what_was_found_once_stays_mended(seed: int) -> None:
    result = simulate(Run(seed))
    assert not result.errors, f"{result}\nrepeat it: {result.run.command}"


def test_a_seed_is_the_same_run_in_any_process() -> None:
    first = simulate(Run(1, seconds=10.0))
    assert simulate(Run(2, seconds=10.0)).digest != first.digest
    words = [sys.executable, "-m", "simulation", "--seed", "1", "--seconds", "10"]
    environment = {**os.environ, "PYTHONHASHSEED": "7"}
    other = subprocess.run(
        words,
        cwd=Path(__file__).parents[1],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert first.digest[:12] in other.stdout


def test_a_world_keeps_no_task_that_has_ended() -> None:
    async def main() -> None:
        task = world.on("a", asyncio.sleep(1.0))
        await asyncio.wait({task})
        ended = weakref.ref(task)
        del task
        await asyncio.sleep(1.0)
        gc.collect()
        assert ended() is None

    world = World(1)
    world.run(main, 60.0)


def test_a_clock_that_drifts_counts_other_seconds() -> None:
    async def look() -> None:
        began, time_of_day = world.now, time.time()
        await asyncio.sleep(11.0)
        assert world.now - began == pytest.approx(10.0)
        assert time.time() - time_of_day == pytest.approx(11.0)
        deadline = world.loop.time() + 1.1
        with pytest.raises(TimeoutError):
            async with asyncio.timeout_at(deadline):
                await asyncio.Event().wait()
        assert world.loop.time() >= deadline
        assert world.now - began == pytest.approx(11.0)

    async def main() -> None:
        world.set_rate("n1", 1.1)
        await world.on("n1", look())

    world = World(1)
    world.run(main, 60.0)


def test_what_never_ends_is_told_with_its_task() -> None:
    async def wait_for_ever() -> None:
        await world.loop.create_future()

    async def main() -> None:
        task = world.on("n1", wait_for_ever())
        task.set_name("the one that waits")
        await task

    world = World(1)
    with pytest.raises(Stuck, match="the one that waits"):
        world.run(main, 60.0)


def test_what_spins_is_told_with_its_task() -> None:
    async def main() -> None:
        while True:  # noqa: ASYNC110 - it is meant to spin
            await asyncio.sleep(0)

    with pytest.raises(Stuck, match=r"no time passes.*program"):
        World(1).run(main, 60.0)
