"""`spark.read.format("liftbridge")` on a real Spark."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    Not,
)
from pyspark.sql.types import StructType

from liftbridge_aio import Record
from liftbridge_aio.spark.core.options import ExtraColumns
from liftbridge_aio.spark.errors import (
    DataLoss,
    InvalidColumns,
    InvalidOption,
    NoOffsetAtTime,
    StreamMissing,
)
from liftbridge_aio.spark.read.schema import spark_types
from liftbridge_aio.spark.source import LiftbridgeDataSource
from spark.conftest import EVERY_SERVER
from support.spark.log_client import LogClient, numbers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read(spark: SparkSession, servers: str, **options: str) -> DataFrame:
    return spark.read.format("liftbridge").option("servers", servers).options(**options).load()


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
            log.publish(name, numbers(0, 900), partition=partition)
    rows = read(spark, spark_broker, subscribe=", ".join(names), arrowBatchRows="300")
    counted = Counter((row.topic, row.partition, row.offset) for row in rows.collect())
    assert counted == Counter(
        (name, partition, offset)
        for name in names
        for partition in range(2)
        for offset in range(900)
    )


# What Spark calls, called without Spark


def ranges(servers: str, **options: str) -> set[tuple[str, int, int, int]]:
    """Plan a batch query; return the stream, partition, start and end of each task."""
    reader = LiftbridgeDataSource({"servers": servers, **options}).reader(schema())
    tasks = [partition.value.wanted for partition in reader.partitions()]
    return {(one.stream, one.partition, one.start, one.end) for one in tasks}


def schema() -> StructType:
    names = ("binary", "binary", "string", "integer", "long", "timestamp")
    fields = [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in zip(spark_types(ExtraColumns()), names, strict=True)
    ]
    return StructType.fromJson({"type": "struct", "fields": fields})


@pytest.fixture
def filled(log: LogClient, stream_name: str) -> str:
    """Partition 0 has offsets 0 to 4, partition 1 has 0 to 9, partition 2 has none."""
    log.create(stream_name, partitions=3)
    log.publish(stream_name, numbers(0, 5), partition=0)
    log.publish(stream_name, numbers(0, 10), partition=1)
    return stream_name


@EVERY_SERVER
def test_a_batch_reads_between_the_offsets_that_are_given(spark_broker: str, filled: str) -> None:
    s = filled
    assert ranges(spark_broker, stream=s) == {(s, 0, 0, 5), (s, 1, 0, 10)}
    assert ranges(
        spark_broker,
        stream=s,
        startingOffsets=json.dumps({s: {"0": 2, "1": -2, "2": -2}}),
        endingOffsets=json.dumps({s: {"0": -1, "1": 7, "2": -1}}),
    ) == {(s, 0, 2, 5), (s, 1, 0, 7)}


@EVERY_SERVER
def test_a_batch_reads_between_times(spark_broker: str, log: LogClient, filled: str) -> None:
    s = filled
    times = [message.timestamp for message in log.read(s, 1)]
    one, other = -(-times[3] // 10**6), -(-times[8] // 10**6)  # milliseconds, rounded up
    later = {"startingOffsetsByTimestampStrategy": "latest"}
    expected_start = sum(time < one * 10**6 for time in times)
    expected_end = sum(time < other * 10**6 for time in times)
    found = ranges(
        spark_broker,
        assign=json.dumps({s: [1]}),
        startingTimestamp=str(one),
        endingTimestamp=str(other),
        **later,
    )
    assert found == (
        {(s, 1, expected_start, expected_end)} if expected_start < expected_end else set()
    )
    by_time = json.dumps({s: {"1": 0}})
    assert ranges(
        spark_broker, assign=json.dumps({s: [1]}), startingOffsetsByTimestamp=by_time
    ) == {(s, 1, 0, 10)}


def test_a_start_later_than_all_messages_is_refused_or_the_end(
    spark_broker: str, filled: str
) -> None:
    late = {"stream": filled, "startingTimestamp": "2100-01-01T00:00:00Z"}
    with pytest.raises(NoOffsetAtTime, match="2100") as caught:
        ranges(spark_broker, **late)
    assert (caught.value.stream, caught.value.partition) == (filled, 0)
    assert "startingOffsetsByTimestampStrategy=latest" in str(caught.value)
    late["startingOffsetsByTimestampStrategy"] = "latest"
    assert ranges(spark_broker, **late) == set()


@EVERY_SERVER
def test_partitions_are_chosen_by_name_pattern_and_number(
    spark_broker: str, log: LogClient, filled: str
) -> None:
    s, other = filled, log.create(f"{filled}-other")
    log.publish(other, numbers(0, 3))
    assert ranges(spark_broker, assign=json.dumps({s: [1, 2]})) == {(s, 1, 0, 10)}
    assert ranges(spark_broker, path=other) == {(other, 0, 0, 3)}
    everything = {(s, 0, 0, 5), (s, 1, 0, 10), (other, 0, 0, 3)}
    assert ranges(spark_broker, subscribe=f"{s},{other}") == everything
    assert ranges(spark_broker, subscribePattern=f"{re.escape(s)}.*") == everything
    assert ranges(spark_broker, subscribePattern=f"{re.escape(s)}-o") == set()


def test_ranges_are_split_into_as_many_tasks_as_are_asked(spark_broker: str, filled: str) -> None:
    s = filled
    found = ranges(spark_broker, stream=s, minPartitions="5")
    assert len(found) == 5
    assert sum(end - start for _, _, start, end in found) == 15
    found = ranges(spark_broker, stream=s, maxRecordsPerPartition="2")
    assert len(found) == 8
    assert max(end - start for _, _, start, end in found) == 2


def test_offsets_that_the_log_does_not_have_are_refused(spark_broker: str, filled: str) -> None:
    only = {"assign": json.dumps({filled: [0]})}

    def at(offset: int) -> str:
        return json.dumps({filled: {"0": offset}})

    with pytest.raises(DataLoss, match="the log ends before offset 5") as caught:
        ranges(spark_broker, **only, endingOffsets=at(9))
    assert (caught.value.stream, caught.value.partition) == (filled, 0)
    assert "endingOffsets" in str(caught.value)
    with pytest.raises(DataLoss, match="startingOffsets"):
        ranges(spark_broker, **only, startingOffsets=at(6))
    with pytest.raises(InvalidOption, match="startingOffsets is after endingOffsets"):
        ranges(spark_broker, **only, startingOffsets=at(4), endingOffsets=at(2))
    with pytest.raises(InvalidOption, match="lacks a partition"):
        ranges(spark_broker, stream=filled, startingOffsets=at(1))
    lenient = {**only, "failOnDataLoss": "false"}
    assert ranges(spark_broker, **lenient, endingOffsets=at(9)) == {(filled, 0, 0, 5)}
    assert ranges(spark_broker, **lenient, startingOffsets=at(6)) == set()


def test_a_stream_that_does_not_exist_is_named(spark_broker: str, stream_name: str) -> None:
    with pytest.raises(StreamMissing, match=stream_name) as caught:
        ranges(spark_broker, stream=stream_name, **{"liftbridge.notFoundTimeout": "0.2"})
    assert "create it first" in str(caught.value)


def test_other_columns_than_those_of_a_stream_are_refused(spark_broker: str) -> None:
    other = StructType.fromJson({"type": "struct", "fields": schema().jsonValue()["fields"][:2]})
    with pytest.raises(InvalidColumns, match=r"leave schema\(\) out"):
        LiftbridgeDataSource({"servers": spark_broker, "stream": "s"}).reader(other)


# Filters


def pushed(
    servers: str, stream: str, *filters: Filter, isolation: str = "read_uncommitted"
) -> set[tuple[int, int, int]]:
    source = LiftbridgeDataSource(
        {
            "servers": servers,
            "stream": stream,
            "pushdownFilters": "true",
            "isolationLevel": isolation,
        }
    )
    reader = source.reader(schema())
    assert list(reader.pushFilters(list(filters))) == list(filters)  # Spark looks again
    tasks = [partition.value.wanted for partition in reader.partitions()]
    return {(one.partition, one.start, one.end) for one in tasks}


def test_filters_of_committed_reads_have_no_end(spark_broker: str, filled: str) -> None:
    """A row is shown where its ack stands: behind it."""
    both = GreaterThan(("offset",), 2), LessThanOrEqual(("offset",), 6)
    found = pushed(spark_broker, filled, *both, isolation="read_committed")
    assert found == {(0, 3, 5), (1, 3, 10)}


def test_filters_become_ranges(spark_broker: str, log: LogClient, filled: str) -> None:
    def found(*filters: Filter) -> set[tuple[int, int, int]]:
        return pushed(spark_broker, filled, *filters)

    offset, partition, topic, at = ("offset",), ("partition",), ("topic",), ("timestamp",)
    everything = {(0, 0, 5), (1, 0, 10)}
    assert found() == everything
    assert found(EqualTo(partition, 1)) == {(1, 0, 10)}
    assert found(In(partition, (0, 2))) == {(0, 0, 5), (1, 0, 10)}  # what lies between stays
    assert found(GreaterThan(offset, 2), LessThanOrEqual(offset, 6)) == {(0, 3, 5), (1, 3, 7)}
    assert found(GreaterThanOrEqual(offset, 7), LessThan(offset, 9)) == {(1, 7, 9)}
    assert found(EqualTo(topic, "another")) == set()
    assert found(EqualTo(topic, filled), EqualTo(offset, 4)) == {(0, 4, 5), (1, 4, 5)}
    assert found(Not(EqualTo(partition, 1)), EqualTo(("key",), b"k")) == everything
    times = [message.time for message in log.read(filled, 1)]
    for limit in (times[4], times[0], times[9]):
        kept = [number for number, time in enumerate(times) if time >= limit]
        after = found(GreaterThanOrEqual(at, limit), EqualTo(partition, 1))
        assert after == {(1, kept[0], 10)}
        before = found(LessThan(at, limit), EqualTo(partition, 1))
        assert before == ({(1, 0, kept[0])} if kept[0] else set())


def test_a_query_with_filters_has_the_same_rows_from_less(
    spark: SparkSession, spark_broker: str, filled: str
) -> None:
    def rows(**options: str) -> tuple[list[tuple[int, int]], int]:
        frame = read(spark, spark_broker, stream=filled, **options)
        chosen = frame.where("partition = 1 and offset >= 6 and offset < 8")
        found = chosen.select("partition", "offset").collect()
        return [(row.partition, row.offset) for row in found], chosen.rdd.getNumPartitions()

    assert rows() == ([(1, 6), (1, 7)], 2)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        assert rows(pushdownFilters="true") == ([(1, 6), (1, 7)], 1)
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_spark_tells_what_is_wrong_with_an_option(spark: SparkSession, spark_broker: str) -> None:
    with pytest.raises(Exception, match=r"\[LIFTBRIDGE_INVALID_OPTION\].*startingOffsets\?"):
        read(spark, spark_broker, stream="s", startingOffset="earliest").collect()


def test_nothing_to_read_is_no_rows(spark: SparkSession, spark_broker: str, filled: str) -> None:
    assert read(spark, spark_broker, assign=json.dumps({filled: [2]})).collect() == []
