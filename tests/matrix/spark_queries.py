"""Queries through the data source, called as Spark's engine calls it; no Spark is started."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from liftbridge_aio.spark.core.options import ReadOptions
from liftbridge_aio.spark.pipelines.archive import ArchivePlan, source_options
from matrix.cells import ALL, GOES_ON, NOTHING, PROBE, Cell
from matrix.operations import operation

if TYPE_CHECKING:
    from support.spark.micro_batches import MicroBatches

TABLE: Final = "Spark"
EARLIEST: Final = {"startingOffsets": "earliest"}
PATIENT: Final = {"liftbridge.notFoundTimeout": "5"}
"""As by default, which `MicroBatches` shortens."""


def servers(cell: Cell) -> str:
    """The servers as an option of the source."""
    return ",".join(cell.stage.world.addresses)


def read_of(cell: Cell, rows: Iterable[tuple[int, int, bytes]], *, start: int = 0) -> str:
    """Say whether the rows are what the log holds from an offset on, each once."""
    found = sorted(rows)
    wanted = sorted(
        (partition, at, value)
        for partition, log in cell.place.logs.items()
        for at, value in log.items()
        if at >= start
    )
    if [row for row in found if row[2] != PROBE] != wanted:
        return f"read {[row[:2] for row in found]} instead of {[row[:2] for row in wanted]}"
    if any(row[2] == PROBE for row in found):
        return GOES_ON
    return ALL if wanted else NOTHING


@operation(TABLE, "batch", slow=True)
async def run_batch(cell: Cell) -> str:
    from liftbridge_aio.spark.read.readers import BatchReader  # noqa: PLC0415 - needs pyspark

    def rows() -> list[tuple[int, int, bytes]]:
        options = {"servers": servers(cell), "stream": cell.stream}
        reader = BatchReader(ReadOptions.parse(options, streaming=False))
        return [
            (row["partition"], row["offset"], row["value"])
            for partition in reader.partitions()
            for batch in reader.read(partition)
            for row in batch.to_pylist()
        ]

    return read_of(cell, await asyncio.to_thread(rows))


async def run_on(cell: Cell, query: MicroBatches) -> str:
    """Run a query up to now, again from its checkpoint when the state has arisen, and once more."""
    from support.spark.micro_batches import flat  # noqa: PLC0415 - needs pyspark

    cell.begun.set()
    await cell.filled.wait()
    await asyncio.to_thread(query.available_now)
    start = cell.end_of()
    await cell.until_arisen()
    query.restart()
    rows: list[Any] = []
    probes = 0
    for partitions in ((), cell.place.logs):
        probes = await cell.probe(partitions)
        rows += flat(await asyncio.to_thread(query.available_now))
    while len({row[1] for row in rows if row[-1] == PROBE}) < probes:  # not committed yet, maybe
        rows += flat(await asyncio.to_thread(query.available_now))
    return read_of(cell, [row[1:] for row in rows], start=start)


@operation(TABLE, "micro-batches", midway=True, slow=True)
async def run_micro_batches(cell: Cell) -> str:
    from support.spark.micro_batches import MicroBatches  # noqa: PLC0415 - needs pyspark

    query = MicroBatches(servers(cell), stream=cell.stream, **EARLIEST, **PATIENT)
    return await run_on(cell, query)


@operation(TABLE, "archive", midway=True, slow=True)
async def run_archive(cell: Cell) -> str:
    from support.spark.micro_batches import MicroBatches  # noqa: PLC0415 - needs pyspark

    plan = ArchivePlan(servers=servers(cell), streams=(cell.stream,), folder=Path("unused"))
    options = {**source_options(plan), **PATIENT}
    return await run_on(cell, MicroBatches(options.pop("servers"), **options))
