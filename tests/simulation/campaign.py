"""Runs of seeds: one, many by several processes, and the shortest run that still fails."""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from liftbridge_aio.testing.simulation.faults import Fault, inflict, plan
from liftbridge_aio.testing.simulation.processes import leaves
from liftbridge_aio.testing.simulation.shrink import fewest
from liftbridge_aio.testing.simulation.world import World

from .flaws import DISKS, LOSSY, SYNCED_DISKS, LostMessages, drawn_flaws, flaws_of
from .load import Load, drawn_programs
from .programs import ALL, AT_LEAST_ONCE
from .stored_logs import put_on_disks

BOUND = 300.0
"""Simulated seconds for everything besides the faults."""


@dataclass(frozen=True)
class Run:
    """What to run.

    Attributes:
        seed: decides everything.
        seconds: simulated seconds of faults.
        faults: the numbers of those to inflict; None: all that the seed has planned.
        programs: the names of those to run; none: those that the seed has drawn.
        flaws: the names of those that brokers have; None: those that the seed has drawn.
    """

    seed: int
    seconds: float = 60.0
    faults: tuple[int, ...] | None = None
    programs: tuple[str, ...] = ()
    flaws: tuple[str, ...] | None = None

    @property
    def flawed(self) -> tuple[str, ...]:
        """The flaws, but for those with which the programs cannot keep what they promise."""
        flaws = drawn_flaws(self.seed) if self.flaws is None else self.flaws
        sturdy = {each.__name__ for each in AT_LEAST_ONCE}.issuperset(self.programs)
        return tuple(each for each in flaws if sturdy or each not in LOSSY)

    @property
    def is_lossy(self) -> bool:
        """True if servers lose what they had acked."""
        return not LOSSY.isdisjoint(self.flawed)

    @property
    def planned(self) -> list[Fault]:
        """The faults."""
        faults = plan(self.seed, self.seconds)
        return [each for each in faults if self.faults is None or each.number in self.faults]

    @property
    def command(self) -> str:
        """What repeats it."""
        words = f"nox -s simulation -- --seed {self.seed} --seconds {self.seconds:g}"
        if self.faults is not None:
            words += f" --faults {','.join(map(str, self.faults))}"
        if self.flaws is not None:
            words += f" --flaws {','.join(self.flaws) or 'none'}"
        return words + "".join(f" --program {each}" for each in self.programs)


@dataclass
class Result:
    """What came of a run.

    Attributes:
        run: what was run.
        digest: of the trace: the same for the same run.
        simulated: seconds.
        took: seconds on a clock.
        published: how many orders were acked.
        excused: how many of these need not be there, as servers have lost them.
        recovered: for each program, the seconds after the last fault until it lacked nothing.
        kinds: of the faults.
        errors: why it failed, if it did.
    """

    run: Run
    digest: str = ""
    simulated: float = 0.0
    took: float = 0.0
    published: int = 0
    excused: int = 0
    recovered: dict[str, float] = field(default_factory=dict)
    kinds: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()

    def __str__(self) -> str:
        programs = ", ".join(self.recovered) or "no program has recovered"
        figures = f"{self.simulated:.0f} s in {self.took:.1f} s, {self.published} acked"
        figures += f" ({self.excused} lost)" if self.excused else ""
        flaws = ", ".join(self.run.flawed) or "no flaws"
        failures = "".join(f"\n  {each}" for each in self.errors)
        return f"seed {self.run.seed}: {figures}, {programs}; {flaws}; {self.digest[:12]}{failures}"


def simulate(run: Run) -> Result:
    """Run a world."""
    began = time.perf_counter()
    programs = [each for each in ALL if each.__name__ in run.programs] or drawn_programs(
        run.seed, sturdy=run.is_lossy
    )
    world = World(
        run.seed,
        clusters=max(each.clusters for each in programs),
        by_priority=run.seed % 3 == 0,  # every third seed
        flaws=flaws_of(run.flawed),
    )
    losses = LostMessages(world, are_excused=run.is_lossy)
    load = Load(world, programs, losses)
    result = Result(run, kinds=tuple(each.kind for each in run.planned))
    try:
        with TemporaryDirectory() as folder:
            if not DISKS.keys().isdisjoint(run.flawed):
                put_on_disks(world, losses, Path(folder), are_synced=SYNCED_DISKS in run.flawed)
            world.run(lambda: load.run(partial(inflict, world, run.planned)), run.seconds + BOUND)
    except Exception as error:  # noqa: BLE001 - a report for each seed
        result.errors = tuple(f"{type(each).__name__}: {each}" for each in leaves(error))
    result.digest, result.simulated = world.trace_hash(), world.now
    result.published, result.excused = load.report.published, load.report.excused
    result.recovered = load.report.recovered
    result.took = time.perf_counter() - began
    return result


def begin_job() -> None:
    """Prepare a process for many runs."""
    logging.disable(logging.CRITICAL)
    gc.freeze()  # each run ends with a collection, which need not look at modules
    gc.set_threshold(100_000, 50, 100)  # most of what a run makes lives as long as the run


def simulate_all(runs: Sequence[Run], jobs: int) -> Iterator[Result]:
    """Run worlds in so many processes."""
    if jobs == 1:
        begin_job()
        yield from map(simulate, runs)
        return
    with ProcessPoolExecutor(jobs, initializer=begin_job) as executor:
        yield from executor.map(simulate, runs)


def shrink(run: Run, tell: Callable[[str], None]) -> Run:
    """Return the shortest run that fails in the same way: few programs, flaws and faults.

    Args:
        run: one that fails.
        tell: is told of each shorter run that fails.

    Raises:
        ValueError: it does not fail.
    """
    kinds = _kinds_of(simulate(run))
    if not kinds:
        raise ValueError(f"seed {run.seed} does not fail")

    def fails(shorter: Run) -> bool:
        found = bool(kinds & _kinds_of(simulate(shorter)))
        if found:
            tell(shorter.command)
        return found

    drawn = drawn_programs(run.seed, sturdy=run.is_lossy)
    programs = run.programs or tuple(each.__name__ for each in drawn)
    flaws = run.flawed

    def with_only(parts: tuple[str, ...]) -> Run:
        return replace(
            run,
            programs=tuple(each for each in programs if each in parts),
            flaws=tuple(each for each in flaws if each in parts),
        )

    def fails_with(parts: tuple[str, ...]) -> bool:
        shorter = with_only(parts)
        return bool(shorter.programs) and fails(shorter)

    run = with_only(fewest((*programs, *flaws), fails_with))
    numbers = tuple(each.number for each in run.planned)
    return replace(run, faults=fewest(numbers, lambda kept: fails(replace(run, faults=kept))))


def _kinds_of(result: Result) -> set[str]:
    """Return the types of the errors with which a run failed."""
    return {each.partition(":")[0] for each in result.errors}
