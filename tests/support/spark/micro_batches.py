"""Runs the reader of a streaming query as Spark's engine does, without Spark.

The order of calls and what is kept between them are the engine's: the end of a batch is written
down before the batch is read, as JSON, and compared as text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit

from liftbridge_aio.spark.core.options import ReadOptions
from liftbridge_aio.spark.read.readers import StreamReader

Row = tuple[str, int, int, bytes]
"""Stream, partition, offset and value."""


def flat(batches: list[list[Row]]) -> list[Row]:
    """The rows of all batches."""
    return [row for batch in batches for row in batch]


class MicroBatches:
    """One query: its checkpoint, and the rows of its batches.

    Args:
        servers: where to.
        options: those of the source.
    """

    def __init__(self, servers: str, **options: str) -> None:
        # What is not there shall be missed soon.
        self.options = {"servers": servers, "liftbridge.notFoundTimeout": "0.2", **options}
        self.offsets: list[str] = []
        """The start offsets, and the checkpoint: the end offsets of each batch."""
        self.reader = self._made()

    def restart(self, **options: str) -> None:
        """Go on with the same checkpoint in a new process, and maybe other options."""
        self.options |= options
        self.reader = self._made()

    def run(self, *, once: bool = False) -> list[list[Row]]:
        """Run batches until there is nothing new; return the rows of each."""
        if not self.offsets:
            self.offsets.append(json.dumps(self.reader.initialOffset()))
        limit: ReadLimit = ReadAllAvailable() if once else self.reader.getDefaultReadLimit()
        batches: list[list[Row]] = []
        while True:
            start = self.offsets[-1]
            end = json.dumps(self.reader.latestOffset(json.loads(start), limit))
            if end == start:
                return batches
            self.offsets.append(end)
            batches.append(self.read_last())

    def available_now(self) -> list[list[Row]]:
        """Run batches up to what is there now."""
        self.reader.prepareForTriggerAvailableNow()
        return self.run()

    def read_last(self) -> list[Row]:
        """Read the last batch in the checkpoint, as a restart does whose last run was cut short.

        Where the first batch starts is not in a checkpoint of Spark: the source is asked again.
        """
        start, end = (json.loads(text) for text in self.offsets[-2:])
        if len(self.offsets) == 2:
            start = json.loads(json.dumps(self.reader.initialOffset()))
        rows: list[Row] = []
        for partition in self.reader.partitions(start, end):
            for batch in self.reader.read(partition):
                rows += [
                    (row["topic"], row["partition"], row["offset"], row["value"])
                    for row in batch.to_pylist()
                ]
        return sorted(rows)

    def where(self) -> Mapping[str, Any]:
        """Return the current offsets by stream and partition, and nothing else."""
        nested = json.loads(self.offsets[-1])
        return {
            stream: {number: offset for number, offset in parts.items() if number.isdecimal()}
            for stream, parts in nested.items()
        }

    def _made(self) -> StreamReader:
        return StreamReader(ReadOptions.parse(self.options, streaming=True))
