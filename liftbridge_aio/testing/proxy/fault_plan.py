"""Random sequences of faults that can be repeated from their seed. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from liftbridge_aio._core.arguments import check_integer, check_number

from .faults import Direction, FaultKind

PLANNED_KINDS: Final = (
    FaultKind.CUT,
    FaultKind.RESET,
    FaultKind.REFUSE,
    FaultKind.FREEZE,
    FaultKind.SWALLOW,
    FaultKind.DELAY,
    FaultKind.THROTTLE,
    FaultKind.TRUNCATE,
)
"""The default kinds of a plan: all that a correct program survives without TLS."""


@dataclass(frozen=True, slots=True)
class PlannedFault:
    """One step of a plan for `FaultProxy.play`."""

    kind: FaultKind
    direction: Direction
    """The direction, for kinds that have one."""
    lasts: float
    """Seconds until the fault is healed."""
    pause: float
    """Seconds without faults after that."""
    amount: float = 0.0
    """Seconds of a delay, or bytes per second of a limit; 0 for other kinds.

    The jitter of a delay is half of it.
    """


def plan_faults(
    seed: int,
    count: int = 10,
    *,
    kinds: Sequence[FaultKind] = PLANNED_KINDS,
    max_lasts: float = 0.5,
    max_pause: float = 0.2,
) -> list[PlannedFault]:
    """Create a plan; equal arguments give an equal plan.

    Args:
        seed: the seed of the random choices.
        count: the number of faults.
        kinds: the kinds to choose from; REFUSE also closes open connections. Add FLIP only for
            programs that have their own checksums.
        max_lasts: the maximum duration of a fault in seconds.
        max_pause: the maximum pause between two faults in seconds.

    Returns:
        The steps, which take less than `count * (max_lasts + max_pause)` seconds in total.

    Raises:
        ValueError: a kind is not a fault (ACCEPT, THAW, HEAL).
    """
    check_integer(count, "count")
    check_number(max_lasts, "max_lasts")
    check_number(max_pause, "max_pause")
    unfit = [kind for kind in kinds if kind not in {*PLANNED_KINDS, FaultKind.FLIP}]
    if unfit or not kinds:
        raise ValueError(f"a plan is made of faults, not of {unfit}")
    random = Random(seed)  # noqa: S311 - no secret
    return [_step(random, kinds, max_lasts, max_pause) for _ in range(count)]


def _step(
    random: Random, kinds: Sequence[FaultKind], max_lasts: float, max_pause: float
) -> PlannedFault:
    kind = random.choice(kinds)
    amount = 0.0
    if kind is FaultKind.DELAY:
        amount = random.uniform(0.0, max_lasts)
    elif kind is FaultKind.THROTTLE:
        amount = 10.0 ** random.uniform(2, 5)
    return PlannedFault(
        kind,
        random.choice([Direction.TO_TARGET, Direction.TO_CLIENTS, Direction.BOTH]),
        lasts=random.uniform(0.0, max_lasts),
        pause=random.uniform(0.0, max_pause),
        amount=amount,
    )
