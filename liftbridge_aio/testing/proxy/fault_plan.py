"""Sequences of faults made by chance, to be done again by their seed. Pure."""

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
"""What a plan is made of by default: all that a correct program survives without TLS."""


@dataclass(frozen=True, slots=True)
class PlannedFault:
    """One step of a plan for `FaultProxy.play`."""

    kind: FaultKind
    direction: Direction
    """Which way, where that makes a difference."""
    lasts: float
    """Seconds until it is healed."""
    pause: float
    """Seconds of peace after that."""
    amount: float = 0.0
    """Of a delay its seconds (half of that again is its jitter), of a limit its bytes per second;
    0 for the rest."""


def plan_faults(
    seed: int,
    count: int = 10,
    *,
    kinds: Sequence[FaultKind] = PLANNED_KINDS,
    max_lasts: float = 0.5,
    max_pause: float = 0.2,
) -> list[PlannedFault]:
    """Make a plan; the same arguments make the same one.

    Args:
        seed: what chance begins with.
        count: how many faults.
        kinds: what they may be; REFUSE closes the open connections too. FLIP is there to be added
            by programs that have checksums of their own.
        max_lasts: seconds that a fault lasts at most.
        max_pause: seconds between two faults at most.

    Returns:
        The steps; together they take less than `count * (max_lasts + max_pause)` seconds.

    Raises:
        ValueError: a kind is no fault (ACCEPT, THAW, HEAL).
    """
    check_integer(count, "count")
    check_number(max_lasts, "max_lasts")
    check_number(max_pause, "max_pause")
    unfit = [kind for kind in kinds if kind not in {*PLANNED_KINDS, FaultKind.FLIP}]
    if unfit or not kinds:
        text = f"a plan is made of faults, not of {unfit}"
        raise ValueError(text)
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
