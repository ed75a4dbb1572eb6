"""Find the columns of a DataFrame that messages are written from. Pure.

Names are those of Spark's Kafka sink, in any case.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Protocol

from liftbridge_aio.spark.errors import InvalidColumns


class ColumnType(Protocol):
    """A type of Spark, of which only the text matters."""

    def simpleString(self) -> str:  # noqa: N802 - Spark's name
        """Return the type as SQL writes it."""
        ...


class Column(Protocol):
    """A column of a schema of Spark."""

    @property
    def name(self) -> str:
        """The name in the DataFrame."""
        ...

    @property
    def dataType(self) -> ColumnType:  # noqa: N802 - Spark's name
        """The type."""
        ...


_CONTENT: Final = ("binary", "string")
_HEADERS: Final = ("array<struct<key:string,value:binary>>", "map<string,binary>")
_TYPES: Final = {
    "value": _CONTENT,
    "key": _CONTENT,
    "headers": _HEADERS,
    "partition": ("int", "smallint", "tinyint", "bigint"),
    "stream": ("string",),
}
_NAMES: Final = {"topic": "stream"} | {name: name for name in _TYPES}
"""The part of a message that a column holds, by its name in lower case."""
_READ_ONLY: Final = frozenset({"offset", "timestamp", "timestamptype", "timestampnanos", "subject"})
"""Columns of a read that the server determines; they are ignored."""


@dataclass(frozen=True, slots=True)
class RowColumns:
    """The index of the column for each part of a message; None if there is no such column."""

    value: int
    key: int | None = None
    headers: int | None = None
    partition: int | None = None
    stream: int | None = None


def row_columns(schema: Iterable[Column], *, stream: str | None) -> RowColumns:
    """Find the columns to write.

    Args:
        schema: the columns of the DataFrame, for example a `StructType`.
        stream: the stream in the options, which overrides the column.

    Raises:
        InvalidColumns: a column is missing, has the wrong type, occurs twice, or is no part of a
            message.
    """
    found: dict[str, int] = {}
    for index, column in enumerate(schema):
        lower = column.name.lower()
        purpose = _NAMES.get(lower)
        if purpose is None:
            if lower in _READ_ONLY:
                continue
            raise _refusal(
                f"the column {column.name} is no part of a message; drop it, or put it into value,"
                " for example with to_json(struct(...))"
            )
        if purpose in found:
            raise _refusal(f"two columns hold the {purpose} of a message; drop one of them")
        _check_type(column, purpose)
        found[purpose] = index
    if "value" not in found:
        raise _refusal("the column value is missing; every message needs it, as binary or string")
    if stream is not None:
        found.pop("stream", None)
    elif "stream" not in found:
        raise _refusal("the stream is not known: set the option stream, or add a column stream")
    return RowColumns(**found)


def _check_type(column: Column, purpose: str) -> None:
    # A string with a collation is a string, too.
    written = column.dataType.simpleString()
    allowed = _TYPES[purpose]
    if written.lower() not in allowed and not (
        "string" in allowed and written.startswith("string collate ")
    ):
        example = _EXAMPLES.get(purpose, f"cast({column.name} as {allowed[-1]})")
        raise _refusal(
            f"the column {column.name} is {written}, but must be {' or '.join(allowed)};"
            f" convert it, for example with {example}"
        )


_EXAMPLES: Final = {
    "headers": "map('trace', cast(id as binary))",
    "partition": "cast(partition as int)",
}


def _refusal(problem: str) -> InvalidColumns:
    return InvalidColumns(f"this DataFrame cannot be written: {problem}")
