"""Committing a batch exactly once: Spark's calls of the sink, in the order of its engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from uuid import UUID, uuid4

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructType

from liftbridge_aio import Isolation
from liftbridge_aio.spark.connection import close_connections
from liftbridge_aio.spark.core.options import WriteOptions
from liftbridge_aio.spark.core.row_columns import RowColumns
from liftbridge_aio.spark.core.write_id import TaskAttempt
from liftbridge_aio.spark.errors import BatchSuperseded
from liftbridge_aio.spark.write.sink import BatchSink, StreamSink, TaskCommit
from liftbridge_aio.spark.write.task_writer import TaskWriter
from spark.conftest import EVERY_SERVER
from support.spark.log_client import LogClient

SCHEMA = StructType().add("value", StringType())
PARTITIONS = 3
_numbers = count()

pytestmark = EVERY_SERVER


class Query:
    """A query with two tasks, and the driver that runs its batches."""

    def __init__(self, log: LogClient, stream: str) -> None:
        self.log, self.stream = log, stream
        self.id = uuid4()

    def options(self, **more: str) -> WriteOptions:
        given = {"servers": self.log.address, "stream": self.stream, "delivery": "exactly_once"}
        return WriteOptions.parse({**given, **more}, streaming="writeId" not in more)

    def run(self, batch: int, *values: str, number: int = 0) -> list[TaskCommit | None]:
        """Run the tasks of a batch; each value is a row of both."""
        return [self.task(batch, task, values, number) for task in (0, 1)]

    def task(
        self, batch: int, task: int, values: tuple[str, ...], number: int, query: UUID | None = None
    ) -> TaskCommit:
        attempt = TaskAttempt(
            query or self.id, batch, task, number, next(_numbers).to_bytes(8, "big")
        )
        writer = TaskWriter(attempt, self.options(), RowColumns(value=0))
        rows = [f"{task}{value}" for value in values]
        writer.publish_all(iter([pa.record_batch({"value": pa.array(rows, pa.string())})]))
        return TaskCommit(attempt, writer.written(), writer.resent, writer.uncommitted())

    def sink(self, **more: str) -> StreamSink:
        """Make a writer, as Spark does for each call."""
        return StreamSink(self.options(**more), SCHEMA, overwrite=False)

    def committed(self) -> list[str]:
        """Return the rows that a committed reading shows."""

        async def read(client: object) -> list[str]:
            found = []
            for partition in range(PARTITIONS):
                reading = client.read(  # type: ignore[attr-defined]
                    self.stream, partition=partition, isolation=Isolation.READ_COMMITTED
                )
                found += [message.value.decode() async for message in reading]
            return sorted(found)

        return self.log.run(read)


@pytest.fixture
def query(log: LogClient, stream_name: str) -> Iterator[Query]:
    yield Query(log, log.create(stream_name, PARTITIONS))
    close_connections()


A_DRIVER = "the same driver"
ANOTHER = "another driver"
RUNS: dict[str, Callable[[], None]] = {A_DRIVER: lambda: None, ANOTHER: close_connections}


@pytest.mark.parametrize("who", RUNS)
def test_a_batch_shows_its_rows_once_however_often_it_is_run(query: Query, who: str) -> None:
    batch = query.run(7, "a", "b", "c", "d")
    assert query.committed() == []
    query.sink().commit(batch, 7)
    whole = sorted(f"{task}{value}" for task in "01" for value in "abcd")
    assert query.committed() == whole
    RUNS[who]()
    query.sink().commit(batch, 7)
    query.sink().commit(query.run(7, "d", "c", "b", "a", "x"), 7)
    assert query.committed() == whole
    query.sink().commit(query.run(8, "e"), 8)
    assert query.committed() == sorted([*whole, "0e", "1e"])


def test_an_attempt_that_failed_or_lost_shows_nothing(query: Query) -> None:
    loser = query.task(7, 0, ("a", "b"), number=0)
    winner = query.task(7, 0, ("b", "a"), number=1)
    query.sink().abort([loser, None], 7)
    query.sink().commit([winner], 7)
    query.sink().abort([winner], 7)
    assert query.committed() == ["0a", "0b"]


def test_a_driver_that_was_replaced_adopts_what_its_successor_decided(query: Query) -> None:
    query.sink().commit(query.run(1, "a"), 1)
    connections_of_old = query.run(2, "b")
    from liftbridge_aio.spark.write import commit  # noqa: PLC0415

    open_of_old = {client: dict(each) for client, each in commit._open.items()}
    for each in commit._open.values():
        each.clear()
    query.sink().commit(query.run(2, "B"), 2)
    for client, each in open_of_old.items():
        commit._open[client] = each
    query.sink().commit(connections_of_old, 2)
    assert query.committed() == ["0B", "0a", "1B", "1a"]


def test_a_batch_before_the_last_one_commits_what_it_did_or_nothing(query: Query) -> None:
    query.sink().commit(query.run(1, "a"), 1)
    query.sink().commit(query.run(3, "b"), 3)
    for forget in RUNS.values():
        forget()
        query.sink().commit(query.run(1, "A"), 1)
        with pytest.raises(BatchSuperseded, match=r"batch 2 of query .*checkpoint"):
            query.sink().commit(query.run(2, "c"), 2)
    assert query.committed() == ["0a", "0b", "1a", "1b"]


def test_queries_may_share_a_stream_of_decisions(query: Query, stream_name: str) -> None:
    shared = {"decisionStream": f"{stream_name}-decisions"}
    other = Query(query.log, query.stream)
    for batch in range(12):
        query.sink(**shared).commit(query.run(batch, f"a{batch}"), batch)
    other.sink(**shared).commit(other.run(0, "b"), 0)
    for batch in range(12, 24):
        query.sink(**shared).commit(query.run(batch, f"a{batch}"), batch)
    close_connections()
    other.sink(**shared).commit(other.run(0, "B"), 0)
    query.sink(**shared).commit(query.run(23, "A"), 23)
    expected = [f"{task}a{batch}" for task in (0, 1) for batch in range(24)]
    assert query.committed() == sorted([*expected, "0b", "1b"])


def test_a_batch_write_that_is_named_is_recognised(query: Query, stream_name: str) -> None:
    def write(*values: str, **more: str) -> None:
        sink = BatchSink(query.options(**more), SCHEMA, overwrite=False)
        sink.commit([query.task(0, task, values, 0, sink._job) for task in (0, 1)])

    write("a", writeId=f"{stream_name} of Monday")
    write("A", writeId=f"{stream_name} of Monday")
    write("b", writeId=f"{stream_name} of Tuesday")
    assert query.committed() == ["0a", "0b", "1a", "1b"]
    write("c")
    write("c")
    assert query.committed() == ["0a", "0b", "0c", "0c", "1a", "1b", "1c", "1c"]


def test_a_batch_without_tasks_or_rows_is_committed(query: Query) -> None:
    query.sink().commit([], 1)
    query.sink().commit(query.run(2), 2)
    query.sink().commit(query.run(2, "a"), 2)
    assert query.committed() == []
