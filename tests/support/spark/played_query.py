"""A query whose tasks and driver a test plays, in the order of Spark's engine and without Spark."""

from __future__ import annotations

import pickle
from itertools import count
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StringType, StructType

from liftbridge_aio.spark.core.options import WriteOptions
from liftbridge_aio.spark.core.row_columns import RowColumns
from liftbridge_aio.spark.core.write_id import TaskAttempt
from liftbridge_aio.spark.write.sink import StreamSink, TaskCommit, _write

if TYPE_CHECKING:
    from support.spark.log_client import LogClient

SCHEMA = StructType().add("value", StringType())
COMMIT = """
import pickle, sys
sink, messages, batch = pickle.load(sys.stdin.buffer)
sink.commit(messages, batch)
"""
"""A program that commits a batch in a process of its own, as another driver would."""
KILLED_COMMIT = (
    """
import asyncio, os, pickle, signal, sys
from dataclasses import replace
from liftbridge_aio import Interceptor
from liftbridge_aio.spark.core.connection_options import ConnectionOptions

class Kill(Interceptor):
    left, when = int(sys.argv[1]), sys.argv[2]

    async def publish(self, message, send):
        self.left -= 1
        if not self.left and self.when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        last, future = not self.left, await send(message)
        if last:
            await asyncio.wait([future])
            os.kill(os.getpid(), signal.SIGKILL)
        return future

kill, made = Kill(), ConnectionOptions.client_options
ConnectionOptions.client_options = lambda *given: replace(made(*given), interceptors=[kill])
"""
    + COMMIT
)
"""The same, ended with kill -9 "before" it sends its n-th message or "after" that is stored."""

_numbers = count()


class PlayedQuery:
    """A query with two tasks, and the driver that runs its batches."""

    def __init__(self, log: LogClient, stream: str) -> None:
        self.log, self.stream = log, stream
        self.id = uuid4()

    def options(self, **more: str) -> WriteOptions:
        given = {"servers": self.log.address, "stream": self.stream, "delivery": "exactly_once"}
        return WriteOptions.parse({**given, **more}, streaming="writeId" not in more)

    def run(self, batch: int, *values: str, number: int = 0) -> list[WriterCommitMessage | None]:
        """Run the tasks of a batch; each value is a row of both."""
        rows = [[f"{task}{value}" for value in values] for task in (0, 1)]
        return [self.task(batch, task, own, number) for task, own in enumerate(rows)]

    def task(
        self,
        batch: int,
        task: int,
        rows: list[str],
        number: int,
        query: UUID | None = None,
        **more: str,
    ) -> TaskCommit:
        """Run a task with these rows, with more options."""
        attempt = TaskAttempt(
            query or self.id, batch, task, number, next(_numbers).to_bytes(8, "big")
        )
        batches = iter([pa.record_batch({"value": pa.array(rows, pa.string())})])
        return _write(batches, attempt, self.options(**more), RowColumns(value=0))

    def sink(self, **more: str) -> StreamSink:
        """Make a writer, as Spark does for each call."""
        return StreamSink(self.options(**more), SCHEMA, overwrite=False)

    def committed(self) -> list[str]:
        """Return the rows that a committed reading shows."""
        return sorted(message.value.decode() for message in self.log.committed(self.stream))

    def as_input(self, batch: int, messages: list[WriterCommitMessage | None]) -> bytes:
        """Return what `COMMIT` reads."""
        return pickle.dumps((self.sink(), messages, batch))
