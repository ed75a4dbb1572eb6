"""Seeds of the simulated world: everybody works again after faults, and nothing is lost."""

from __future__ import annotations

import os
from typing import Final

import pytest

from .load import Load
from .world import Stuck, World

SEEDS: Final = int(os.environ.get("LIFTBRIDGE_SEEDS", "12"))
FAULTS: Final = 60.0
"""Simulated seconds of faults."""
BOUND: Final = 3 * FAULTS + 120.0
"""Simulated seconds for everything."""


def run(seed: int, faults: float = FAULTS) -> World:
    world = World(seed)
    load = Load(world, faults)
    world.run(load.run, BOUND)
    assert load.acked
    return world


@pytest.mark.parametrize("seed", range(1, SEEDS + 1))
def test_everybody_works_again_and_nothing_is_lost(seed: int) -> None:
    run(seed)


def test_a_seed_is_the_same_run_twice() -> None:
    first, second = run(1, faults=10.0), run(1, faults=10.0)
    assert first.trace_hash() == second.trace_hash()
    assert run(2, faults=10.0).trace_hash() != first.trace_hash()


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
