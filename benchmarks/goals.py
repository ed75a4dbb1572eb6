"""Goals of our client beside go-liftbridge, and whether they are reached. Pure.

Limits are ratios within one run. Where a goal was set in microseconds of processor time, it is
taken as a share of what go-liftbridge took where that was measured: machines differ.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from .cases import Case, Choice, Kind, cases_of
from .summary import OURS, REFERENCE, CaseSummary, ClientSummary, Spread, ratio_of
from .table import TIMES, rate, small, times, with_spread

PYTHON_PEERS: Final = ("python-liftbridge", "gufo-liftbridge")
BEST_PYTHON: Final = "best Python peer"

_CPU: Final = "client_cpu_seconds_per_million"
_RATE: Final = "messages_per_second"
_WINDOWS: Final = (1, 1_000, 10_000)
_RATES: Final = (1_000,)


class Verdict(enum.Enum):
    """Verdict on a figure and its limits."""

    GOAL = "goal reached"
    MUST = "must reached"
    MISSED = "missed"
    OPEN = "not measured"


@dataclass(frozen=True, slots=True)
class Goal:
    """A row of the table of goals.

    Attributes:
        title: What is compared.
        case: In which case; its number of messages does not matter.
        figure: Which figure, by its key in the result files.
        must: The ratio that decides whether it is good enough; None: there is none.
        goal: The ratio that is wanted; None: there is none.
        against: The client compared with, or `BEST_PYTHON`.
        at_most: Whether less is better.
    """

    title: str
    case: Case
    figure: str
    must: float | None
    goal: float | None
    against: str = REFERENCE
    at_most: bool = False

    def verdict(self, ratio: float | None) -> Verdict:
        """Return the verdict on a ratio."""
        if ratio is None:
            return Verdict.OPEN
        for limit, verdict in ((self.goal, Verdict.GOAL), (self.must, Verdict.MUST)):
            if limit is not None and (ratio <= limit if self.at_most else ratio >= limit):
                return verdict
        return Verdict.MISSED

    def limit(self, value: float | None) -> str:
        """A limit as the table shows it."""
        if value is None:
            return ""
        sign = "\N{LESS-THAN OR EQUAL TO}" if self.at_most else "\N{GREATER-THAN OR EQUAL TO}"
        return f"{sign} {value:g} {TIMES}"


_CONSUME: Final = Case(Kind.CONSUME, 0)
_PUBLISH: Final = Case(Kind.PUBLISH, 0)
_WIDE: Final = replace(_PUBLISH, window=10_000)
_SINGLE: Final = replace(_PUBLISH, window=1)
_LATENCY: Final = Case(Kind.LATENCY, 0, rate=1_000)

GOALS: Final = (
    Goal("consume, msg/s", _CONSUME, _RATE, 1.0, 1.15),
    # 5.6 and 4.2 µs, where go-liftbridge took 5.6.
    Goal("consume, client CPU", _CONSUME, _CPU, 1.0, 0.75, at_most=True),
    Goal("publish window 1,000, msg/s", _PUBLISH, _RATE, 0.9, 1.1),
    Goal("publish window 10,000, msg/s", _WIDE, _RATE, 0.9, 1.1),
    # 11 and 8 µs, where go-liftbridge took 9.5 with the smaller window and 8.0 with the larger.
    Goal("publish window 1,000, client CPU", _PUBLISH, _CPU, 1.16, 0.84, at_most=True),
    Goal("publish window 10,000, client CPU", _WIDE, _CPU, 1.37, 1.0, at_most=True),
    Goal("publish one at a time, p50", _SINGLE, "latency_p50", 1.5, 1.2, at_most=True),
    Goal("publish one at a time, p99", _SINGLE, "latency_p99", 1.5, 1.2, at_most=True),
    Goal(
        "to delivery at 1,000 msg/s, p50", _LATENCY, "delivery_latency_p50", 1.5, 1.2, at_most=True
    ),
    Goal(
        "to delivery at 1,000 msg/s, p99", _LATENCY, "delivery_latency_p99", 1.5, 1.2, at_most=True
    ),
    Goal("consume, msg/s", _CONSUME, _RATE, 10.0, 15.0, BEST_PYTHON),
    Goal("publish window 1,000, msg/s", _PUBLISH, _RATE, 10.0, None, BEST_PYTHON),
)
"""The goals that there are, apart from those of a client straight on NATS, which is not there."""


def goal_cases(choice: Choice) -> tuple[Case, ...]:
    """The cases that the goals are about; of the choice only the numbers of messages count."""
    plain = Choice(messages=choice.messages, quick=choice.quick)
    return (
        *cases_of(Kind.CONSUME, replace(plain, partitions=(1,))),
        *cases_of(Kind.PUBLISH, replace(plain, windows=_WINDOWS)),
        *cases_of(Kind.LATENCY, replace(plain, rates=_RATES)),
    )


@dataclass(frozen=True, slots=True)
class Standing:
    """A goal beside what was measured.

    Attributes:
        goal: Which.
        ours: Our figure; None if it was not measured.
        theirs: That of the client compared with.
        against: The name of that client.
        ratio: Between the two.
    """

    goal: Goal
    ours: Spread | None
    theirs: Spread | None
    against: str
    ratio: Spread | None

    @property
    def verdict(self) -> Verdict:
        """Verdict on this goal."""
        return self.goal.verdict(None if self.ratio is None else self.ratio.median)

    def as_json(self) -> dict[str, Any]:
        """As the result files have it."""
        return {
            "goal": self.goal.title,
            "figure": self.goal.figure,
            "against": self.against,
            "must": self.goal.must,
            "wanted": self.goal.goal,
            "at_most": self.goal.at_most,
            "ours": None if self.ours is None else self.ours.as_json(),
            "theirs": None if self.theirs is None else self.theirs.as_json(),
            "ratio": None if self.ratio is None else self.ratio.as_json(),
            "verdict": self.verdict.value,
        }


def standings(summaries: Sequence[CaseSummary]) -> list[Standing]:
    """Every goal with what was measured."""
    return [_standing(goal, summaries) for goal in GOALS]


COLUMNS: Final = ("", "must", "goal", "measured", OURS, "the other", "against", "verdict")


def goal_rows(standing: Iterable[Standing]) -> list[tuple[str, ...]]:
    """The table of goals."""
    return [_row(each) for each in standing]


def _row(standing: Standing) -> tuple[str, ...]:
    goal = standing.goal
    form = rate if goal.figure == _RATE else small
    unit = "" if goal.figure == _RATE else " µs"
    ours, theirs = (
        "" if spread is None else form(spread.median) + unit
        for spread in (standing.ours, standing.theirs)
    )
    return (
        goal.title,
        goal.limit(goal.must),
        goal.limit(goal.goal),
        "" if standing.ratio is None else with_spread(standing.ratio, times),
        ours,
        theirs,
        standing.against,
        standing.verdict.value,
    )


def _standing(goal: Goal, summaries: Sequence[CaseSummary]) -> Standing:
    summary = next((each for each in summaries if _same(each.case, goal.case)), None)
    ours = None if summary is None else summary.of(OURS)
    theirs = None if summary is None else _other(goal, summary)
    return Standing(
        goal=goal,
        ours=None if ours is None else ours.figures.get(goal.figure),
        theirs=None if theirs is None else theirs.figures.get(goal.figure),
        against=goal.against if theirs is None else theirs.client,
        ratio=None
        if ours is None or theirs is None
        else ratio_of(ours.runs, theirs.runs, goal.figure),
    )


def _other(goal: Goal, summary: CaseSummary) -> ClientSummary | None:
    if goal.against != BEST_PYTHON:
        return summary.of(goal.against)
    peers = [summary.of(name) for name in PYTHON_PEERS]
    measured = [peer for peer in peers if peer is not None and goal.figure in peer.figures]
    return max(measured, key=lambda peer: peer.figures[goal.figure].median, default=None)


def _same(case: Case, other: Case) -> bool:
    """Return True if two cases are the same but for their duration."""
    return replace(case, messages=0, duration=0) == replace(other, messages=0, duration=0)
