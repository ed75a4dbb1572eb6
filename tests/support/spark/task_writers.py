"""Tasks that write, as Spark's workers run them."""

from __future__ import annotations

from typing import Final
from uuid import UUID

import pyarrow as pa

from liftbridge_aio.spark.core.options import WriteOptions
from liftbridge_aio.spark.core.row_columns import RowColumns
from liftbridge_aio.spark.core.write_id import TaskAttempt
from liftbridge_aio.spark.write.task_writer import TaskWriter

ATTEMPT: Final = TaskAttempt(query=UUID(int=5), batch=0, task=0, number=0, id=b"attempt1")
VALUES: Final = RowColumns(value=0)


def task_writer(
    servers: str, stream: str, columns: RowColumns = VALUES, /, **options: str
) -> TaskWriter:
    """Make the writer of a task for rows with these columns."""
    given = {"servers": servers, "stream": stream, **options}
    return TaskWriter(ATTEMPT, WriteOptions.parse(given, streaming=False), columns)


def batch_of(values: list[bytes] | list[bytes | None], *names: str) -> pa.RecordBatch:
    """Make rows of values, or with these columns, all of which have the values."""
    column = pa.array(values, pa.binary())
    return pa.RecordBatch.from_pydict(dict.fromkeys(names or ("value",), column))
