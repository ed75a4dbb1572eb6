"""Batch reads: a stream of one partition, and of two."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.cases import Case, Kind

from .contest import Bench, Contender
from .samples import CLIENT, COMMITTED, KAFKA, NOTHING, OURS, UNCOMMITTED, Comparison

PARTITIONS = (1, 2)


def measure_reads(bench: Bench, partitions: tuple[int, ...]) -> Iterator[Comparison]:
    """Read all rows of a stream: one task, and so one Python worker, for each partition."""
    for count in partitions:
        stream = bench.filled_stream(bench.rows, count)
        exactly_once = _written_exactly_once(bench, count)
        title = f"read {bench.rows:,} rows of {bench.size} B, {count} partition(s)"
        yield Comparison(
            title, bench.take_turns(title, _contenders(bench, stream, exactly_once, count))
        )
        bench.forget(stream)
        bench.forget(exactly_once)


def _written_exactly_once(bench: Bench, partitions: int) -> str:
    stream = bench.new_stream(partitions)
    job = {"job": "write", "rows": bench.rows, "size": bench.size, "tasks": partitions}
    options = bench.liftbridge(stream, delivery="exactly_once")
    bench.on_spark(job | {"format": "liftbridge", "options": options})
    return stream


def _contenders(
    bench: Bench, stream: str, exactly_once: str, partitions: int
) -> dict[str, Contender]:
    job = {"job": "read", "rows": bench.rows}
    case = Case(Kind.CONSUME, bench.rows, bench.size, partitions)
    ours = job | {"format": "liftbridge", "options": bench.liftbridge(stream)}
    nothing = job | {"format": "nothing", "options": bench.nothing(bench.rows, partitions)}
    committed = job | {"format": "liftbridge", "options": bench.liftbridge(exactly_once)}
    everything = {
        "job": "read",
        "rows": bench.rows + partitions,  # an ack in each
        "format": "liftbridge",
        "options": bench.liftbridge(exactly_once, isolationLevel="read_uncommitted"),
    }
    contenders: dict[str, Contender] = {
        CLIENT: lambda: bench.client_alone(case, stream),
        OURS: lambda: bench.on_spark(ours),
        COMMITTED: lambda: bench.on_spark(committed),
        UNCOMMITTED: lambda: bench.on_spark(everything),
        NOTHING: lambda: bench.on_spark(nothing),
    }
    if bench.kafka is not None:
        kafka = bench.kafka
        topic = bench.filled_topic(kafka, bench.rows, partitions)
        theirs = job | {"format": "kafka", "options": kafka.reading(topic)}
        contenders[KAFKA] = lambda: bench.on_spark(theirs, kafka.pids)
    return contenders
