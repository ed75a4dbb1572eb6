"""Convert the rows of an Arrow batch into the parts of messages, column by column."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from liftbridge_aio.model import TRANSACTION_HEADERS
from liftbridge_aio.spark.core.row_columns import RowColumns
from liftbridge_aio.spark.core.row_placement import Rows
from liftbridge_aio.spark.errors import InvalidRow

if TYPE_CHECKING:
    import pyarrow as pa


def rows_of(batch: pa.RecordBatch, columns: RowColumns, *, first: int) -> Rows:
    """Return the parts of messages in an Arrow batch.

    Args:
        batch: from Spark.
        columns: the columns of the parts.
        first: number of the first row of the batch within its task, for errors.

    Raises:
        InvalidRow: a header of a row has no name, is one of transactions, or occurs twice.
    """
    values = _content(batch.column(columns.value))
    keys = None if columns.key is None else _content(batch.column(columns.key))
    return Rows(
        first,
        values,
        keys if keys is not None and any(keys) else None,
        _present(None if columns.headers is None else _headers(batch, columns.headers, first)),
        _present(_plain(batch, columns.partition)),
        _plain(batch, columns.stream),
    )


def _plain(batch: pa.RecordBatch, index: int | None) -> list[Any] | None:
    return None if index is None else batch.column(index).to_pylist()


def _present(items: list[Any] | None) -> list[Any] | None:
    return items if items is not None and any(item is not None for item in items) else None


def _content(column: pa.Array[Any]) -> list[bytes | None]:
    import pyarrow as pa  # noqa: PLC0415 - only workers need it

    # Arrow stores strings as UTF-8, so that nothing is encoded row by row.
    contents: list[bytes | None] = column.cast(pa.binary()).to_pylist()
    return contents


def _headers(batch: pa.RecordBatch, index: int, first: int) -> list[dict[str, bytes] | None] | None:
    import pyarrow as pa  # noqa: PLC0415 - only workers need it

    column = batch.column(index)
    if column.null_count == len(column):
        return None
    if isinstance(column, pa.MapArray):
        names, contents = column.keys, column.items
    else:
        names, contents = column.values.flatten()
    pairs = list(zip(names.to_pylist(), contents.to_pylist(), strict=True))
    present = column.is_valid().to_pylist()
    spans = pairwise(column.offsets.to_pylist())
    return [
        _header_map(pairs[start:end], first + row) if valid and end > start else None
        for row, (valid, (start, end)) in enumerate(zip(present, spans, strict=True))
    ]


def _header_map(pairs: list[tuple[str | None, bytes | None]], row: int) -> dict[str, bytes]:
    headers: dict[str, bytes] = {}
    for name, content in pairs:
        if name is None or name in headers:
            problem = "a header without a name" if name is None else f"the header {name!r} twice"
            raise InvalidRow(f"row {row} of the task has {problem}, which a message cannot have")
        if name in TRANSACTION_HEADERS:
            raise InvalidRow(
                f"row {row} of the task has the header {name!r}, which only transactions set"
            )
        headers[name] = content or b""
    return headers
