"""The columns of what is read: names and order are Kafka's, so that a pipeline ports by its format.

The same columns twice: as Spark is told of them, and as Arrow carries them. Spark compares the two
to the letter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .options import ExtraColumns

if TYPE_CHECKING:
    import pyarrow as pa


def spark_types(columns: ExtraColumns) -> dict[str, str]:
    """Name Spark's type of each column, in the order of the columns."""
    return {
        "key": "binary",
        "value": "binary",
        "topic": "string",
        "partition": "int",
        "offset": "bigint",
        "timestamp": "timestamp",
        **({"headers": "array<struct<key:string,value:binary>>"} if columns.headers else {}),
        **({"subject": "string"} if columns.subject else {}),
        **({"timestampNanos": "bigint"} if columns.timestamp_nanos else {}),
    }


def spark_schema(columns: ExtraColumns) -> str:
    """Write the columns as Spark's DDL."""
    return ", ".join(f"{name} {kind}" for name, kind in spark_types(columns).items())


def arrow_schema(columns: ExtraColumns) -> pa.Schema:
    """Make the columns as Arrow's schema: times are microseconds in UTC, as Spark's are."""
    import pyarrow as pa  # noqa: PLC0415 - the extra [spark], and used on executors only

    types = {
        "key": pa.binary(),
        "value": pa.binary(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "headers": headers_type(),
        "subject": pa.string(),
        "timestampNanos": pa.int64(),
    }
    return pa.schema([(name, types[name]) for name in spark_types(columns)])


def headers_type() -> pa.ListType:
    """Make Arrow's type of the column of headers, with the names that Spark gives its parts."""
    import pyarrow as pa  # noqa: PLC0415 - as above

    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    return pa.list_(pa.field("element", header))
