"""Which columns of a DataFrame make up the messages that are written. Pure.

Names are Kafka's, and like all names of Spark they may be written in any case.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Protocol

from .errors import InvalidColumns


class ColumnType(Protocol):
    """A type of Spark, of which only the text is looked at."""

    def simpleString(self) -> str:  # noqa: N802 - Spark's name
        """Return the type as SQL writes it."""
        ...


class Column(Protocol):
    """A column of a schema of Spark."""

    @property
    def name(self) -> str:
        """Its name as the DataFrame has it."""
        ...

    @property
    def dataType(self) -> ColumnType:  # noqa: N802 - Spark's name
        """Its type."""
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
"""What a column is for, by its name in lower case."""
_READ_ONLY: Final = frozenset({"offset", "timestamp", "timestamptype", "timestampnanos", "subject"})
"""What the server decides of each message: it may come along from a read, and is passed over."""


@dataclass(frozen=True, slots=True)
class RowColumns:
    """Where the parts of a message stand in a row, by index; None where there is no such column."""

    value: int
    key: int | None = None
    headers: int | None = None
    partition: int | None = None
    stream: int | None = None


def row_columns(schema: Iterable[Column], *, stream: str | None) -> RowColumns:
    """Find the columns to write.

    Args:
        schema: the columns of the DataFrame, for example a `StructType`.
        stream: the stream that the options name, which beats the column.

    Raises:
        InvalidColumns: one is missing, has another type than it should, stands there twice, or
            means nothing.
    """
    found: dict[str, int] = {}
    for index, column in enumerate(schema):
        lower = column.name.lower()
        purpose = _NAMES.get(lower)
        if purpose is None:
            if lower in _READ_ONLY:
                continue
            text = (
                f"the column {column.name} is no part of a message; drop it, or put it into value,"
                " for example with to_json(struct(...))"
            )
            raise _refusal(text)
        if purpose in found:
            text = f"two columns give the {purpose} of a message; drop one of them"
            raise _refusal(text)
        _check_type(column, purpose)
        found[purpose] = index
    if "value" not in found:
        raise _refusal("there is no column value, which every message needs, as binary or string")
    if stream is not None:
        found.pop("stream", None)
    elif "stream" not in found:
        raise _refusal("nothing names the stream: set the option stream, or add a column stream")
    return RowColumns(**found)


def _check_type(column: Column, purpose: str) -> None:
    # A string with a collation is a string: the rest of its name says how strings are compared.
    written = column.dataType.simpleString()
    allowed = _TYPES[purpose]
    if written.lower() not in allowed and not (
        "string" in allowed and written.startswith("string collate ")
    ):
        example = _EXAMPLES.get(purpose, f"cast({column.name} as {allowed[-1]})")
        text = (
            f"the column {column.name} is {written}, and must be {' or '.join(allowed)};"
            f" turn it into that, for example with {example}"
        )
        raise _refusal(text)


_EXAMPLES: Final = {
    "headers": "map('trace', cast(id as binary))",
    "partition": "cast(partition as int)",
}


def _refusal(problem: str) -> InvalidColumns:
    return InvalidColumns(f"this DataFrame cannot be written: {problem}")
