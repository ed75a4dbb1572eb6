"""The rows of an Arrow batch as the parts of messages, column by column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from .errors import InvalidRow
from .row_columns import RowColumns

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(slots=True)
class Rows:
    """Rows of a task, a list for each part of a message; None where no row has that part."""

    first: int
    """Number of the first row in its task."""
    values: list[bytes | None]
    keys: list[bytes | None] | None
    headers: list[dict[str, bytes] | None] | None
    partitions: list[int | None] | None
    streams: list[str | None] | None

    def __len__(self) -> int:
        return len(self.values)


def rows_of(batch: pa.RecordBatch, columns: RowColumns, *, first: int) -> Rows:
    """Take the parts of messages out of an Arrow batch.

    Args:
        batch: what Spark hands to a writer.
        columns: where the parts stand.
        first: number of the first row of the batch in its task, for what errors say.

    Raises:
        InvalidRow: the headers of a row have no name, or one name twice.
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

    # A string is its UTF-8 bytes in Arrow too, so that nothing is encoded row by row.
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
        _header_map(pairs[start:end], first + row) if there and end > start else None
        for row, (there, (start, end)) in enumerate(zip(present, spans, strict=True))
    ]


def _header_map(pairs: list[tuple[str | None, bytes | None]], row: int) -> dict[str, bytes]:
    headers: dict[str, bytes] = {}
    for name, content in pairs:
        if name is None or name in headers:
            problem = "a header without a name" if name is None else f"the header {name!r} twice"
            text = f"row {row} of the task has {problem}, which a message cannot have"
            raise InvalidRow(text)
        headers[name] = content or b""
    return headers


def add_headers(rows: Rows, added: Sequence[Mapping[str, bytes]]) -> None:
    """Add headers to each of the rows, over those of the same names."""
    if rows.headers is None:
        rows.headers = [dict(headers) for headers in added]
    else:
        rows.headers = [
            {**(mine or {}), **more} for mine, more in zip(rows.headers, added, strict=True)
        ]
