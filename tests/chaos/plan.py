"""Order of the faults of a run: random, and repeatable by its seed. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, unique
from random import Random
from typing import Final, TypeVar

T = TypeVar("T")


@unique
class Kind(Enum):
    """Kind of a fault; the values are the words of the table."""

    KILL_LEADER = "kill -9 of a partition leader"
    KILL_FOLLOWER = "kill -9 of a follower"
    KILL_TWO = "kill -9 of two nodes of three"
    KILL_EACH = "kill -9 of every node in turn"
    FREEZE_LEADER = "leader stopped (SIGSTOP) past its lease"
    ROLLING_RESTART = "rolling restart (SIGINT)"
    NATS_RESTART = "restart of NATS"
    MOVE_BROKER = "broker comes back at another address"
    CUT = "connections cut"
    RESET = "connections reset"
    REFUSE = "connections refused"
    HALF_OPEN = "half-open links (bytes swallowed)"
    STALL = "links frozen, then thawed"
    SILENT = "server accepts and never answers"
    THROTTLE = "slow links"
    DELAY = "links with long delays"
    TRUNCATE = "connections end within a frame"
    GOAWAY = "GOAWAY"
    DEAD_SEED = "one seed dead"
    SILENT_SEED = "one seed silent"
    SLOW_READER = "slow reader"
    FLIP = "bits flipped (streams of their own)"


LONG: Final = (
    Kind.KILL_LEADER,
    Kind.FREEZE_LEADER,
    Kind.KILL_FOLLOWER,
    Kind.MOVE_BROKER,
    Kind.NATS_RESTART,
)
"""Faults that take several seconds to heal, since the nodes have to notice them."""
LONGEST: Final = (Kind.KILL_TWO, Kind.ROLLING_RESTART, Kind.KILL_EACH)
"""Faults that take the longest: one of these comes in each round."""
SHORT: Final = tuple(kind for kind in Kind if kind not in {*LONG, *LONGEST})
"""Faults between clients and nodes that are over at once."""

NOT_NOTICED_AT_ONCE: Final = frozenset({Kind.HALF_OPEN, Kind.STALL, Kind.SILENT})
"""Faults that clients notice only after some time, so that they have to last longer than that."""

LONGEST_SECONDS: Final = 30.0
LONG_SECONDS: Final = 14.0
UNNOTICED_SECONDS: Final = 8.0
SHORT_SECONDS: Final = 4.0


@dataclass(frozen=True, slots=True)
class Planned:
    """One fault of a plan.

    What it befalls is not known before the moment, as leaders move; so chance comes as numbers.
    """

    number: int
    """From 1."""
    kind: Kind
    lasts: float
    """Seconds that it is left to work, where it does not end by itself."""
    place: float
    """From 0 up to 1: which partition, node or reader."""
    amount: float
    """From 0 up to 1: how bad."""
    other: float
    """From 0 up to 1: what else is left to chance."""

    @property
    def usual_seconds(self) -> float:
        """Return the seconds that it usually takes, healing included."""
        if self.kind in LONGEST or self.kind is Kind.MOVE_BROKER:
            return LONGEST_SECONDS
        if self.kind in NOT_NOTICED_AT_ONCE:
            return UNNOTICED_SECONDS
        return LONG_SECONDS if self.kind in LONG else SHORT_SECONDS

    def choose(self, among: Sequence[T]) -> T:
        """The one of these that it befalls."""
        return among[int(self.place * len(among))]


def plan(seed: int) -> Iterator[Planned]:
    """Make the plan of a seed: it has no end, and whoever plays it stops when time is up.

    It comes in rounds. A round has each short and each long fault once and one of the longest, so
    that a run of two minutes has nearly all kinds.
    """
    random = Random(seed)
    longest: list[Kind] = []
    number = 0
    while True:
        longest = longest or random.sample(LONGEST, len(LONGEST))
        for kind in _round(random, longest.pop()):
            number += 1
            lasts = (
                random.uniform(3.0, 6.0)
                if kind in NOT_NOTICED_AT_ONCE
                else random.uniform(0.3, 2.0)
            )
            yield Planned(number, kind, lasts, random.random(), random.random(), random.random())


def _round(random: Random, longest: Kind) -> list[Kind]:
    """Each third or fourth fault is a long one: a long one after a long one shows less."""
    short = random.sample(SHORT, len(SHORT))
    long = random.sample(LONG, len(LONG))
    long.insert(random.randrange(1, len(long) + 1), longest)
    kinds: list[Kind] = []
    share = len(short) / len(long)
    for at, kind in enumerate(long):
        kinds += [kind, *short[round(at * share) : round((at + 1) * share)]]
    return kinds
