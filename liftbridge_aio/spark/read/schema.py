"""The columns of a read, as types of Spark and of Arrow.

Names and order are those of Spark's Kafka source, so that a pipeline is ported by changing the
format. Spark requires that its types and Arrow's agree exactly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from liftbridge_aio.spark.core.options import ExtraColumns

if TYPE_CHECKING:
    import pyarrow as pa


def spark_types(columns: ExtraColumns) -> dict[str, str]:
    """Return Spark's type of each column, in the order of the columns."""
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
    """Return the columns as DDL of Spark."""
    return ", ".join(f"{name} {kind}" for name, kind in spark_types(columns).items())


def arrow_schema(columns: ExtraColumns) -> pa.Schema:
    """Return the schema in Arrow; times are microseconds in UTC, as in Spark."""
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
    """Return Arrow's type of the column headers, with the names that Spark gives its parts."""
    import pyarrow as pa  # noqa: PLC0415 - as above

    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    return pa.list_(pa.field("element", header))
