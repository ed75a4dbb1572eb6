"""`df.write.format("liftbridge")` on a real Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from liftbridge_aio.partitioner import by_key
from liftbridge_aio.spark.write_report import write_report
from spark.conftest import EVERY_SERVER
from support.spark.broker_thread import BrokerThread
from support.spark.log_client import LogClient

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def write(frame: DataFrame, servers: str, stream: str | None = None, **options: str) -> None:
    writer = frame.write.format("liftbridge").mode("append").option("servers", servers)
    if stream is not None:
        writer = writer.option("stream", stream)
    writer.options(**options).save()


@EVERY_SERVER
def test_all_columns_arrive(
    spark: SparkSession, spark_broker: str, log: LogClient, stream_name: str
) -> None:
    log.create(stream_name, partitions=3)
    frame = spark.createDataFrame(
        [
            (bytearray(b"one"), "k", [("trace", bytearray(b"7"))], 2, stream_name),
            (bytearray(b"two"), None, None, 0, stream_name),
            (bytearray(b""), "ü", [], None, stream_name),
        ],
        "value binary, key string, headers array<struct<key: string, value: binary>>,"
        " partition int, topic string",
    )
    write(frame, spark_broker)
    arrived = {
        (message.partition, message.key, message.value, message.headers.get("trace"))
        for message in log.read_all(stream_name)
    }
    assert arrived == {
        (2, b"k", b"one", b"7"),
        (0, b"", b"two", None),
        (by_key(stream_name, "ü".encode(), b"", 3), "ü".encode(), b"", None),
    }


def test_what_is_read_is_written_elsewhere_or_goes_back_where_it_came_from(
    spark: SparkSession, spark_broker: str, log: LogClient, stream_name: str
) -> None:
    copy = f"{stream_name}-copy"
    log.create(stream_name, partitions=2)
    log.create(copy, partitions=2)
    log.publish(stream_name, [b"%d" % number for number in range(20)], partition=1)
    source = spark.read.format("liftbridge").option("servers", spark_broker)
    frame = source.option("stream", stream_name).option("includeHeaders", "true").load()
    write(frame, spark_broker, copy)
    assert [message.value for message in log.read(copy, 1)] == [
        message.value for message in log.read(stream_name, 1)
    ]
    write(frame, spark_broker)
    values = [message.value for message in log.read(stream_name, 1)]
    assert values == 2 * [b"%d" % number for number in range(20)]


def test_the_tasks_of_a_worker_share_a_connection(
    spark: SparkSession, own_broker: BrokerThread, stream_name: str
) -> None:
    with LogClient(own_broker.address) as log:
        log.create(stream_name)
        for first in range(0, 50, 10):
            frame = spark.range(first, first + 10, numPartitions=2)
            write(frame.selectExpr("cast(id as string) as value"), own_broker.address, stream_name)
        arrived = [int(message.value) for message in log.read(stream_name)]
    assert sorted(arrived) == list(range(50))
    # Two tasks at a time: ten tasks that connected anew would have left ten sessions.
    assert own_broker._broker.statistics().publish_sessions <= 4


def test_an_identity_on_request_tells_rows_from_repeats(
    spark: SparkSession, spark_broker: str, log: LogClient, stream_name: str
) -> None:
    log.create(stream_name, partitions=2)
    frame = spark.range(0, 30, numPartitions=2).selectExpr("cast(id as string) as value")
    write(frame, spark_broker, stream_name, includeWriteId="true")
    report = log.run(lambda client: write_report(client, stream_name))
    assert (report.rows, report.repeats, report.gaps, report.unmarked) == (30, 0, 0, 0)
    (batch,) = report.batches
    assert batch.attempts == 2


REFUSED = {
    "a column that means nothing": (
        ["'v' as value", "2 as price"],
        "price is no part of a message",
    ),
    "a value of a wrong type": (
        ["1.5D as value"],
        r"value is double, but must be binary or string",
    ),
    "no value": (["'k' as key"], "the column value is missing"),
    "no stream": (["'v' as value"], "set the option stream, or add a column stream"),
}


@pytest.mark.parametrize(("columns", "text"), REFUSED.values(), ids=REFUSED)
def test_a_frame_that_cannot_be_written_is_refused_before_any_task(
    spark: SparkSession, spark_broker: str, columns: list[str], text: str
) -> None:
    from pyspark.errors import AnalysisException  # noqa: PLC0415

    frame = spark.range(1).selectExpr(*columns)
    stream = None if "stream" in text else "orders"
    with pytest.raises(AnalysisException, match=rf"\[LIFTBRIDGE_INVALID_COLUMNS\].*{text}"):
        write(frame, spark_broker, stream)


def test_mode_overwrite_is_refused(spark: SparkSession, spark_broker: str) -> None:
    from pyspark.errors import AnalysisException  # noqa: PLC0415

    writer = spark.range(1).selectExpr("'v' as value").write.format("liftbridge")
    writer = writer.option("servers", spark_broker).option("stream", "orders")
    with pytest.raises(AnalysisException, match=r"LIFTBRIDGE_INVALID_OPTION.*mode\('append'\)"):
        writer.mode("overwrite").save()


ONE_HEADER = "named_struct('key', 'h', 'value', cast('1' as binary))"
BAD_ROWS = {
    "a header twice": (
        ["'v' as value", f"array({ONE_HEADER}, {ONE_HEADER}) as headers"],
        r"row 0 of the task has the header 'h' twice.*\[stream='{stream}'\]",
    ),
    "no value": (
        ["if(id = 5, null, 'v') as value"],
        r"\[LIFTBRIDGE_INVALID_ROW\] row 5 of the task has no value \[stream='{stream}', part",
    ),
    "too large": (
        ["if(id = 5, repeat('x', 2000000), 'v') as value"],
        r"row 5 of the task: .*\[stream='{stream}', partition=0\]: .*liftbridge\.maxMessageBytes",
    ),
}


@pytest.mark.parametrize(("columns", "text"), BAD_ROWS.values(), ids=BAD_ROWS)
def test_a_bad_row_is_named(
    spark: SparkSession,
    spark_broker: str,
    log: LogClient,
    stream_name: str,
    columns: list[str],
    text: str,
) -> None:
    from pyspark.errors import PythonException  # noqa: PLC0415

    log.create(stream_name)
    frame = spark.range(0, 10, numPartitions=1).selectExpr(*columns)
    with pytest.raises(PythonException, match=text.format(stream=stream_name)):
        write(frame, spark_broker, stream_name)


def test_a_missing_stream_is_named(spark: SparkSession, spark_broker: str) -> None:
    from pyspark.errors import PythonException  # noqa: PLC0415

    frame = spark.range(1).selectExpr("'v' as value", "'nowhere' as stream")
    with pytest.raises(
        PythonException,
        match=r"\[LIFTBRIDGE_STREAM_MISSING\] the stream does not exist .*'nowhere'.*: create it",
    ):
        write(frame, spark_broker, **{"liftbridge.notFoundTimeout": "0.3"})
