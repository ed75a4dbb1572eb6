"""`spark.read.format("liftbridge")` on a real Spark."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from liftbridge_aio import Record
from spark.conftest import EVERY_SERVER
from spark.log_client import LogClient

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read(spark: SparkSession, servers: str, **options: str) -> DataFrame:
    return spark.read.format("liftbridge").option("servers", servers).options(**options).load()


def numbers(first: int, last: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, last)]


@EVERY_SERVER
def test_every_column_is_what_was_published(
    spark: SparkSession, spark_broker: str, log: LogClient, stream_name: str
) -> None:
    log.create(stream_name, partitions=2)
    log.publish(
        stream_name,
        [
            Record(b"one", b"k", {"b": b"2", "a": b"\x00"}, partition=1),
            Record(b"", None, None, partition=1),
        ],
    )
    frame = read(
        spark,
        spark_broker,
        stream=stream_name,
        includeHeaders="true",
        includeSubject="true",
        includeTimestampNanos="true",
    )
    assert frame.columns == [
        *("key", "value", "topic", "partition", "offset", "timestamp"),
        *("headers", "subject", "timestampNanos"),
    ]
    first, second = frame.orderBy("offset").collect()
    assert (bytes(first.key), bytes(first.value)) == (b"k", b"one")
    assert [(header.key, bytes(header.value)) for header in first.headers] == [
        ("a", b"\x00"),
        ("b", b"2"),
    ]
    assert (second.key, bytes(second.value), second.headers) == (None, b"", None)
    for row, message in zip((first, second), log.read(stream_name, 1), strict=True):
        assert (row.topic, row.partition, row.offset) == (stream_name, 1, message.offset)
        assert row.subject == f"{stream_name}.1"
        assert row.timestampNanos == message.timestamp
        assert row.timestamp == message.time.replace(tzinfo=None)


@EVERY_SERVER
def test_every_message_of_several_streams_is_there_once(
    spark: SparkSession, spark_broker: str, log: LogClient, stream_name: str
) -> None:
    names = [log.create(f"{stream_name}-{letter}", partitions=2) for letter in "ab"]
    for name in names:
        for partition in range(2):
            log.publish(name, numbers(0, 3000), partition=partition)
    rows = read(spark, spark_broker, subscribe=", ".join(names), arrowBatchRows="1000")
    counted = Counter((row.topic, row.partition, row.offset) for row in rows.collect())
    assert counted == Counter(
        (name, partition, offset)
        for name in names
        for partition in range(2)
        for offset in range(3000)
    )
