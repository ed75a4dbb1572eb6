"""Micro-batches: how many rows pass in the long run, and how long next to nothing takes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from benchmarks.summary import Spread
from benchmarks.table import small, with_spread

from .contest import JOB_TIMEOUT, Bench, Contender, ContenderFailed
from .samples import EXACTLY_ONCE, KAFKA, NOTHING, OURS, Comparison, Sample

BATCHES: Final = 12
TINY_ROWS: Final = 10
TINY_BATCHES: Final = 20
_QUICK_BATCHES: Final = 2
_WARM_BATCHES: Final = 2
"""Batches at the start of a query that do not count."""


@dataclass(frozen=True, slots=True)
class Floors:
    """Duration of a nearly empty micro-batch.

    Attributes:
        title: What was run.
        milliseconds: By contender, over all batches of all rounds.
    """

    title: str
    milliseconds: dict[str, Spread]

    def as_json(self) -> dict[str, Any]:
        """As the result files have it."""
        found = {name: spread.as_json() for name, spread in self.milliseconds.items()}
        return {"title": self.title, "milliseconds": found}


FLOOR_COLUMNS: Final = ("", "ms for a batch", "more than nothing")


def floor_rows(floors: Floors) -> list[tuple[str, ...]]:
    """A row for each contender."""
    nothing = floors.milliseconds.get(NOTHING)
    return [
        (
            name,
            with_spread(spread, small),
            "" if nothing is None or name == NOTHING else small(spread.median - nothing.median),
        )
        for name, spread in floors.milliseconds.items()
    ]


def measure_microbatches(bench: Bench) -> Iterator[Comparison | Floors]:
    """Stream to a sink that does nothing, and from stream to stream; then tiny batches.

    Where it is enough that it works, each way is gone once.
    """
    each = max(1, bench.rows // (_QUICK_BATCHES if bench.quick else BATCHES))
    stream = bench.filled_stream(bench.rows)
    for to_stream in (False,) if bench.quick else (False, True):
        what = "to a stream" if to_stream else "to nothing"
        title = f"micro-batches of {each:,} rows of {bench.size} B, {what}"
        queries = _Queries(bench, stream, bench.rows, each, to_stream=to_stream)
        yield Comparison(title, bench.take_turns(title, queries.contenders()), target=None)
    bench.forget(stream)
    rows = TINY_ROWS * (_QUICK_BATCHES if bench.quick else TINY_BATCHES)
    stream = bench.filled_stream(rows)
    for to_stream in (True,) if bench.quick else (False, True):
        what = "to a stream" if to_stream else "to nothing"
        title = f"micro-batches of {TINY_ROWS} rows, {what}"
        queries = _Queries(bench, stream, rows, TINY_ROWS, to_stream=to_stream)
        bench.take_turns(title, queries.contenders())
        yield Floors(title, queries.floors())
    bench.forget(stream)


class _Queries:
    """Streaming queries through the same rows, by contender."""

    def __init__(self, bench: Bench, stream: str, rows: int, each: int, *, to_stream: bool) -> None:
        self._bench, self._stream, self._rows, self._each = bench, stream, rows, each
        self._to_stream = to_stream
        self._milliseconds: dict[str, list[list[float]]] = {}
        self._numbers = 0

    def contenders(self) -> dict[str, Contender]:
        bench, rows, each = self._bench, self._rows, self._each
        source = bench.liftbridge(
            self._stream, startingOffsets="earliest", maxOffsetsPerTrigger=each
        )
        contenders: dict[str, Contender] = {
            OURS: lambda: self._run(OURS, "liftbridge", source),
            NOTHING: lambda: self._run(
                NOTHING, "nothing", bench.nothing(rows, rows_per_batch=each)
            ),
        }
        if self._to_stream:
            contenders[EXACTLY_ONCE] = lambda: self._run(EXACTLY_ONCE, "liftbridge", source)
        if bench.kafka is not None:
            kafka = bench.kafka
            topic = bench.filled_topic(kafka, rows)
            theirs = kafka.reading(topic, maxOffsetsPerTrigger=each)
            contenders[KAFKA] = lambda: self._run(KAFKA, "kafka", theirs, kafka.pids)
        return contenders

    def floors(self) -> dict[str, Spread]:
        """Return the durations of batches, after the round that warms up."""
        return {
            name: Spread.of([each for turn in turns[-self._bench.rounds :] for each in turn])
            for name, turns in self._milliseconds.items()
        }

    def _run(
        self, name: str, form: str, source: dict[str, str], server: tuple[int, ...] | None = None
    ) -> Sample:
        self._numbers += 1
        ours = name in {OURS, EXACTLY_ONCE}
        target = self._bench.new_stream() if self._to_stream and ours else ""
        job = {
            "job": "stream",
            "rows": self._rows,
            "source": {"format": form, "options": source},
            "columns": ["value"] if self._to_stream else [],
            "sink": self._sink(name, target),
            "checkpoint": str(
                self._bench.spark.folder / f"{self._stream}-{self._to_stream}-{self._numbers}"
            ),
            "timeout": JOB_TIMEOUT,
        }
        figures, used = self._bench.figures(job, server)
        batches = figures["batches"]
        if sum(batch["rows"] for batch in batches) != self._rows:
            raise ContenderFailed(f"{name}: batches of {[batch['rows'] for batch in batches]} rows")
        if target:
            acks = len(batches) if name == EXACTLY_ONCE else 0
            self._bench.expect(target, 1, self._rows + acks)
            self._bench.forget(target)
        steady = batches[_WARM_BATCHES:] or batches
        took = [float(batch["milliseconds"]) for batch in steady]
        self._milliseconds.setdefault(name, []).append(took)
        # Processor time is that of all batches.
        share = sum(batch["rows"] for batch in steady) / self._rows
        return Sample(
            rows=sum(batch["rows"] for batch in steady),
            seconds=sum(took) / 1000,
            python_cpu_seconds=figures["python_cpu_seconds"] * share,
            java_cpu_seconds=figures["java_cpu_seconds"] * share,
            server_cpu_seconds=None if used is None else used * share,
        )

    def _sink(self, name: str, target: str) -> dict[str, Any]:
        if not self._to_stream:
            return {"format": "noop", "options": {}}
        if name == OURS:
            return {"format": "liftbridge", "options": self._bench.liftbridge(target)}
        if name == EXACTLY_ONCE:
            options = self._bench.liftbridge(target, delivery="exactly_once")
            return {"format": "liftbridge", "options": options}
        if name == KAFKA and self._bench.kafka is not None:
            topic = self._bench.new_topic(self._bench.kafka)
            return {"format": "kafka", "options": self._bench.kafka.writing(topic)}
        return {"format": "nothing", "options": {}}
