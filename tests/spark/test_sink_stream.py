"""`df.writeStream.format("liftbridge")` on a real Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from liftbridge_aio.spark.write_report import write_report
from support.spark.log_client import LogClient

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def texts(spark: SparkSession, folder: Path, *lines: str) -> DataFrame:
    """Read a line after the other, each file as a batch of its own, after adding one."""
    folder.mkdir(exist_ok=True)
    number = len(list(folder.iterdir()))
    (folder / f"{number:03}.txt").write_text("".join(f"{line}\n" for line in lines))
    return spark.readStream.option("maxFilesPerTrigger", 1).text(str(folder))


def source(spark: SparkSession, servers: str, stream: str, **options: str) -> DataFrame:
    reader = spark.readStream.format("liftbridge").option("servers", servers)
    reader = reader.option("subscribe", stream).option("startingOffsets", "earliest")
    return reader.options(**options).load()


def run(
    frame: DataFrame,
    servers: str,
    stream: str,
    checkpoint: str,
    *,
    mode: str = "append",
    **more: Any,
) -> None:
    """Run a query over all that is there, to its end."""
    writer = frame.writeStream.format("liftbridge").outputMode(mode).option("servers", servers)
    writer = writer.option("stream", stream).option("checkpointLocation", checkpoint)
    query = writer.options(**more).trigger(availableNow=True).start()
    try:
        query.awaitTermination()
    finally:
        query.stop()


def test_a_batch_that_runs_again_repeats_the_same_rows_and_no_others(
    spark: SparkSession,
    spark_broker: str,
    log: LogClient,
    stream_name: str,
    checkpoint: str,
    forget_last_commit: Callable[[], int],
) -> None:
    orders, copies = log.create(stream_name), log.create(f"{stream_name}-copies", 2)
    log.publish(orders, [b"%d" % number for number in range(30)])
    frame = source(spark, spark_broker, orders, maxOffsetsPerTrigger="15")
    run(frame, spark_broker, copies, checkpoint, includeWriteId="true")
    last = forget_last_commit()
    log.publish(orders, [b"%d" % number for number in range(30, 40)])
    run(frame, spark_broker, copies, checkpoint, includeWriteId="true")
    arrived = Counter(int(message.value) for message in log.read_all(copies))
    assert arrived == Counter(range(40)) + Counter(range(15, 30))
    report = log.run(lambda client: write_report(client, copies))
    assert (report.rows, report.repeats, report.gaps, report.unmarked) == (40, 15, 0, 0)
    assert [(one.batch, one.repeats) for one in report.batches if one.repeats] == [(last, 15)]


def test_totals_in_complete_mode_are_appended_as_a_whole_by_each_batch(
    spark: SparkSession,
    spark_broker: str,
    log: LogClient,
    stream_name: str,
    checkpoint: str,
    tmp_path: Path,
) -> None:
    totals = log.create(stream_name)
    texts(spark, tmp_path / "in", "a", "b")
    frame = texts(spark, tmp_path / "in", "a", "a")
    counted = frame.groupBy(frame["value"].alias("key")).count()
    totalled = counted.selectExpr("key", "cast(count as string) as value")
    run(totalled, spark_broker, totals, checkpoint, mode="complete")
    newest = {message.key: message.value for message in log.read(totals)}
    assert newest == {b"a": b"3", b"b": b"1"}
    assert len(log.read(totals)) == 4
