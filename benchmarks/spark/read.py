"""Batch reads: a stream of one partition, and of two."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.cases import Case, Kind

from .contest import Bench, Contender
from .samples import CLIENT, KAFKA, NOTHING, OURS, Comparison

PARTITIONS = (1, 2)


def measure_reads(bench: Bench, partitions: tuple[int, ...]) -> Iterator[Comparison]:
    """Read all rows of a stream: one task, and so one Python worker, for each partition."""
    for count in partitions:
        stream = bench.filled_stream(bench.rows, count)
        title = f"read {bench.rows:,} rows of {bench.size} B, {count} partition(s)"
        yield Comparison(title, bench.take_turns(title, _contenders(bench, stream, count)))
        bench.forget(stream)


def _contenders(bench: Bench, stream: str, partitions: int) -> dict[str, Contender]:
    job = {"job": "read", "rows": bench.rows}
    case = Case(Kind.CONSUME, bench.rows, bench.size, partitions)
    ours = job | {"format": "liftbridge", "options": bench.liftbridge(stream)}
    nothing = job | {"format": "nothing", "options": bench.nothing(bench.rows, partitions)}
    contenders: dict[str, Contender] = {
        CLIENT: lambda: bench.client_alone(case, stream),
        OURS: lambda: bench.on_spark(ours),
        NOTHING: lambda: bench.on_spark(nothing),
    }
    if bench.kafka is not None:
        kafka = bench.kafka
        topic = bench.filled_topic(kafka, bench.rows, partitions)
        theirs = job | {"format": "kafka", "options": kafka.reading(topic)}
        contenders[KAFKA] = lambda: bench.on_spark(theirs, kafka.pids)
    return contenders
