"""Measurements with Spark, put together: rates, their cost, and ratios. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from benchmarks.summary import Spread, significant
from benchmarks.table import rate, small, times, with_spread

OURS: Final = "Spark, liftbridge"
WITH_IDS: Final = "Spark, liftbridge, includeWriteId"
EXACTLY_ONCE: Final = "Spark, liftbridge, delivery=exactly_once"
COMMITTED: Final = "Spark, liftbridge, rows written exactly once"
UNCOMMITTED: Final = "Spark, liftbridge, the same rows read_uncommitted"
CLIENT: Final = "our client alone"
NOTHING: Final = "Spark, a source or sink that does nothing"
KAFKA: Final = "Spark, kafka"
TARGET: Final = 0.8
"""Target of ours, relative to the slower of its two parts."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One run.

    Attributes:
        rows: How many passed.
        seconds: What that took.
        python_cpu_seconds: Processor time of our client's process, or of Spark's Python workers.
        java_cpu_seconds: Of Spark's Java process; 0 without Spark.
        server_cpu_seconds: Of the server; None if it had no part, or is unknown.
    """

    rows: int
    seconds: float
    python_cpu_seconds: float = 0.0
    java_cpu_seconds: float = 0.0
    server_cpu_seconds: float | None = None

    @property
    def rows_per_second(self) -> float:
        """The rate."""
        return self.rows / self.seconds

    def figures(self) -> dict[str, float]:
        """By the keys of the result files."""
        found = {
            "rows_per_second": self.rows_per_second,
            "python_cpu_seconds_per_million": self._per_million(self.python_cpu_seconds),
            "java_cpu_seconds_per_million": self._per_million(self.java_cpu_seconds),
        }
        if self.server_cpu_seconds is not None:
            found["server_cpu_seconds_per_million"] = self._per_million(self.server_cpu_seconds)
        return found

    def _per_million(self, seconds: float) -> float:
        return seconds / self.rows * 1e6


Rounds = Mapping[str, Sequence[Sample]]
"""The samples of each contender, in the order of the rounds."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Contenders that took turns.

    Attributes:
        title: What they did.
        rounds: Their samples.
        target: What ours is to reach at least of the slower floor; None if nothing is wanted.
    """

    title: str
    rounds: Rounds
    target: float | None = TARGET

    @property
    def share(self) -> Spread | None:
        """Rows per second of ours to those of the slower floor, round by round."""
        floors = [self.rounds[name] for name in (CLIENT, NOTHING) if self.rounds.get(name)]
        if not floors:
            return None
        slower = min(floors, key=_middle)
        shares = [
            ours.rows_per_second / theirs.rows_per_second
            for ours, theirs in zip(self.rounds.get(OURS, ()), slower, strict=False)
        ]
        return Spread.of(shares) if shares else None

    @property
    def reached(self) -> bool | None:
        """True if the target was reached; None without one, or without measurements."""
        if self.share is None or self.target is None:
            return None
        return self.share.median >= self.target

    def spread(self, name: str, figure: str) -> Spread | None:
        """A figure of a contender over its rounds; None if it was not measured."""
        values = [sample.figures().get(figure) for sample in self.rounds.get(name, ())]
        known = [value for value in values if value is not None]
        return Spread.of(known) if known else None

    def as_json(self) -> dict[str, Any]:
        """As the result files have it."""
        return {
            "title": self.title,
            "share": None if self.share is None else self.share.as_json(),
            "target": self.target,
            "reached": self.reached,
            "contenders": [
                {
                    "name": name,
                    "runs": [
                        {key: significant(value) for key, value in sample.figures().items()}
                        for sample in samples
                    ],
                }
                for name, samples in self.rounds.items()
            ],
        }


COLUMNS: Final = ("", "rows/s", "of it", "Python CPU µs", "Java CPU µs", "server CPU µs")


def comparison_rows(comparison: Comparison) -> list[tuple[str, ...]]:
    """A row for each contender; `of it` is what ours reaches of the rate in that row."""
    return [_row(comparison, name) for name, samples in comparison.rounds.items() if samples]


def verdict(comparison: Comparison) -> str:
    """Return the verdict on ours, in a line below the table; empty without a target."""
    if comparison.reached is None or comparison.share is None:
        return ""
    share, word = (
        with_spread(comparison.share, times),
        "reached" if comparison.reached else "missed",
    )
    return f"of the slower of the two: {share}, at least {comparison.target:g} wanted: {word}"


def _row(comparison: Comparison, name: str) -> tuple[str, ...]:
    ratios = [
        ours.rows_per_second / theirs.rows_per_second
        for ours, theirs in zip(
            comparison.rounds.get(OURS, ()), comparison.rounds[name], strict=False
        )
    ]
    ratio = "" if name == OURS or not ratios else with_spread(Spread.of(ratios), times)

    def cell(figure: str) -> str:
        spread = comparison.spread(name, f"{figure}_cpu_seconds_per_million")
        return "" if spread is None or not spread.most else with_spread(spread, small)

    speed = comparison.spread(name, "rows_per_second")
    shown = "" if speed is None else with_spread(speed, rate)
    return (name, shown, ratio, cell("python"), cell("java"), cell("server"))


def _middle(samples: Sequence[Sample]) -> float:
    return statistics.median(sample.rows_per_second for sample in samples)
