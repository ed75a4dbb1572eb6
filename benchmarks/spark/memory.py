"""Memory of Spark's Python workers over a long stream, from stream to stream."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from benchmarks.memory import mebibytes
from benchmarks.summary import Spread
from benchmarks.table import with_spread

from .contest import Bench

BATCHES: Final = 100
MOST_GROWTH: Final = 8 * 2**20
"""Bytes that a worker may have more at the end than when it was warm."""
_QUICK_BATCHES: Final = 3
_TIMEOUT: Final = 600.0


@dataclass(frozen=True, slots=True)
class Growth:
    """Course of the workers' memory.

    Attributes:
        batches: Micro-batches of the query.
        rows: Rows of them all.
        workers: Processes that lived long enough to be judged.
        total: Bytes of all processes together, over the query.
        most: Bytes that a worker had more in the last quarter than in the second one, at most.
    """

    batches: int
    rows: int
    workers: int
    total: Spread
    most: int

    @property
    def flat(self) -> bool:
        """True if no worker grew."""
        return self.most <= MOST_GROWTH

    def as_json(self) -> dict[str, Any]:
        """As the result files have it."""
        return {
            "batches": self.batches,
            "rows": self.rows,
            "workers": self.workers,
            "total_bytes": self.total.as_json(),
            "growth_bytes": self.most,
            "flat": self.flat,
        }


COLUMNS: Final = ("rows", "batches", "workers", "all of them", "growth of one, at most", "")


def growth_row(growth: Growth) -> tuple[str, ...]:
    """The row of the table."""
    return (
        f"{growth.rows:,}",
        str(growth.batches),
        str(growth.workers),
        with_spread(growth.total, mebibytes),
        mebibytes(growth.most),
        "flat" if growth.flat else "grows",
    )


def judge(samples: Sequence[Mapping[int, int]], batches: int, rows: int) -> Growth:
    """Judge samples of every worker's bytes, taken while a query ran.

    Workers come and go. One is judged if it was there in the second quarter and in the last one.
    """
    quarter = max(1, len(samples) // 4)
    warm, last = samples[quarter : 2 * quarter] or samples[:1], samples[-quarter:]
    both = {pid for each in warm for pid in each} & {pid for each in last for pid in each}
    grown = [_middle(last, pid) - _middle(warm, pid) for pid in both]
    totals = [sum(each.values()) for each in samples]
    return Growth(batches, rows, len(both), Spread.of(totals), round(max(grown, default=0)))


def measure_memory(bench: Bench) -> Growth:
    """Run a query of many micro-batches, and look at the workers meanwhile."""
    stream, target = bench.filled_stream(bench.rows), bench.new_stream()
    batches = _QUICK_BATCHES if bench.quick else BATCHES
    each = max(1, bench.rows // batches)
    bench.tell(f"memory: {bench.rows:,} rows in {batches} micro-batches")
    source = bench.liftbridge(stream, startingOffsets="earliest", maxOffsetsPerTrigger=each)
    figures = bench.spark.do(
        {
            "job": "stream",
            "rows": bench.rows,
            "source": {"format": "liftbridge", "options": source},
            "columns": ["value"],
            "sink": {"format": "liftbridge", "options": bench.liftbridge(target)},
            "checkpoint": str(bench.spark.folder / "memory"),
            "timeout": _TIMEOUT,
            "memory": True,
        },
        _TIMEOUT,
    )
    bench.expect(target, 1, bench.rows)
    samples = [{int(pid): size for pid, size in each.items()} for each in figures["memory"]]
    return judge(samples, len(figures["batches"]), bench.rows)


def _middle(samples: Sequence[Mapping[int, int]], pid: int) -> float:
    return statistics.median(each[pid] for each in samples if pid in each)
