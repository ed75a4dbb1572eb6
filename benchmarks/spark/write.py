"""Batch writes with ack policy `all`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from benchmarks.cases import AckPolicy, Case, Kind

from .contest import Bench, Contender
from .samples import (
    CLIENT,
    EXACTLY_ONCE,
    KAFKA,
    NOTHING,
    OURS,
    WITH_IDS,
    Comparison,
    Sample,
)

WINDOW: Final = 16_384
"""Publishes that wait for their acks at a time: what the sink and the client do by themselves."""


def measure_writes(bench: Bench, partitions: tuple[int, ...]) -> Iterator[Comparison]:
    """Write rows that Spark makes up: as many tasks as the stream has partitions."""
    for count in partitions:
        title = f"write {bench.rows:,} rows of {bench.size} B, {count} partition(s)"
        yield Comparison(title, bench.take_turns(title, _contenders(bench, count)))


def _contenders(bench: Bench, partitions: int) -> dict[str, Contender]:
    job = {"job": "write", "rows": bench.rows, "size": bench.size, "tasks": partitions}

    def alone() -> Sample:
        case = Case(
            Kind.PUBLISH, bench.rows, bench.size, partitions, WINDOW, ack_policy=AckPolicy.ALL
        )
        stream = bench.new_stream(partitions)
        sample = bench.client_alone(case, stream)
        bench.forget(stream)
        return sample

    def ours(acks: int = 0, **more: str) -> Sample:
        stream = bench.new_stream(partitions)
        options = bench.liftbridge(stream, ackPolicy="all", maxInFlight=WINDOW, **more)
        sample = bench.on_spark(job | {"format": "liftbridge", "options": options})
        bench.expect(stream, partitions, bench.rows + acks)
        bench.forget(stream)
        return sample

    contenders: dict[str, Contender] = {
        CLIENT: alone,
        OURS: ours,
        WITH_IDS: lambda: ours(includeWriteId="true"),
        EXACTLY_ONCE: lambda: ours(acks=partitions, delivery="exactly_once"),
        NOTHING: lambda: bench.on_spark(job | {"format": "nothing", "options": {}}),
    }
    if bench.kafka is not None:
        kafka = bench.kafka

        def theirs() -> Sample:
            options = kafka.writing(bench.new_topic(kafka, partitions))
            return bench.on_spark(job | {"format": "kafka", "options": options}, kafka.pids)

        contenders[KAFKA] = theirs
    return contenders
