"""Behaviour on every kind of Spark: in one process, on a cluster, and remote.

`nox -s spark_matrix` runs these on all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from liftbridge_aio import Record
from liftbridge_aio.partitioner import by_key
from spark.conftest import EVERY_SERVER
from support.spark.log_client import LogClient

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STOP = 60
"""Seconds after which a query has failed."""


@EVERY_SERVER
def test_batches_read_what_clients_wrote(
    spark: SparkSession, log: LogClient, stream_name: str
) -> None:
    log.create(stream_name, partitions=2)
    log.publish(stream_name, [Record(b"%d" % n, b"k%d" % n, partition=n % 2) for n in range(40)])
    rows = (
        spark.read.format("liftbridge")
        .option("servers", log.address)
        .option("stream", stream_name)
        .option("endingOffsets", "latest")
        .load()
        .collect()
    )
    found = sorted((row.partition, row.offset, bytes(row.key), bytes(row.value)) for row in rows)
    stored = [(m.partition, m.offset, m.key, m.value) for m in log.read_all(stream_name)]
    assert len(found) == 40
    assert found == sorted(stored)


@EVERY_SERVER
def test_clients_read_what_batches_wrote(
    spark: SparkSession, log: LogClient, stream_name: str
) -> None:
    log.create(stream_name, partitions=2)
    rows = [(f"k{number}", f"v{number}") for number in range(40)]
    (
        spark.createDataFrame(rows, "key string, value string")
        .write.format("liftbridge")
        .mode("append")
        .option("servers", log.address)
        .option("stream", stream_name)
        .save()
    )
    messages = log.read_all(stream_name)
    assert sorted((each.key.decode(), each.value.decode()) for each in messages) == sorted(rows)
    for each in messages:
        assert each.partition == by_key(stream_name, each.key, b"", 2)


@EVERY_SERVER
def test_a_query_copies_each_message_once_and_goes_on_after_a_restart(
    spark: SparkSession, log: LogClient, stream_name: str, checkpoint: str
) -> None:
    source, target = f"{stream_name}-in", f"{stream_name}-out"
    log.create(source, partitions=2)
    log.create(target, partitions=2)

    def run() -> None:
        events = (
            spark.readStream.format("liftbridge")
            .option("servers", log.address)
            .option("subscribe", source)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", "15")
            .load()
        )
        query = (
            events.select("key", "value")
            .writeStream.format("liftbridge")
            .option("servers", log.address)
            .option("stream", target)
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(STOP)

    for first in (0, 40):
        values = [b"%d" % number for number in range(first, first + 40)]
        log.publish(source, values[::2], partition=0)
        log.publish(source, values[1::2], partition=1)
        run()
    found = sorted(int(message.value) for message in log.read_all(target))
    assert found == list(range(80))
