"""A pipeline from stream to stream: sales in, totals for each shop and time window out.

The worked example of this package; `nox -s pipeline` runs it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from liftbridge_aio.spark.pipelines.json_columns import JSON_OPTIONS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

SALE: Final = "shop string, cents bigint, at timestamp"
"""The fields of an event in JSON; `at` is when it happened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TotalsPlan:
    """The streams and settings of the pipeline.

    Attributes:
        servers: addresses as `host:port,host:port`.
        events: the stream of sales.
        totals: the stream of totals.
        checkpoint: the directory for Spark's checkpoint.
        window: the length of the time window of a total, by the events' time: `5 minutes`.
        lateness: how much older than the newest event an event may be and still be counted.
    """

    servers: str
    events: str
    totals: str
    checkpoint: str
    window: str = "5 minutes"
    lateness: str = "1 minute"


def windowed_totals(events: DataFrame, plan: TotalsPlan) -> DataFrame:
    """Return the rows to write, one for each shop and window, from the rows of the source.

    A total is written when its window is over: after an event that is newer than its end by
    `lateness`. So it is written once, and is final.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415 - optional

    sale = f.from_json(f.col("value").cast("string"), SALE)
    totals = (
        events.select(sale.alias("sale"))
        .select("sale.*")
        .withWatermark("at", plan.lateness)
        .groupBy(f.window("at", plan.window), "shop")
        .agg(f.count("*").alias("sales"), f.sum("cents").alias("cents"))
    )
    start = f.col("window.start").alias("start")
    return totals.select(
        f.col("shop").alias("key"),
        f.to_json(f.struct(start, "shop", "sales", "cents"), JSON_OPTIONS).alias("value"),
    )


def start_totals(spark: SparkSession, plan: TotalsPlan, trigger: str) -> StreamingQuery:
    """Start the query; it runs until it is stopped.

    Args:
        spark: a session in which the source is registered.
        plan: the streams and settings.
        trigger: the interval between batches, such as `500 milliseconds`.
    """
    events = (
        spark.readStream.format("liftbridge")
        .option("servers", plan.servers)
        .option("subscribe", plan.events)
        .option("startingOffsets", "earliest")
        .load()
    )
    return (
        windowed_totals(events, plan)
        .writeStream.format("liftbridge")
        .option("servers", plan.servers)
        .option("stream", plan.totals)
        .option("delivery", "exactly_once")
        .option("checkpointLocation", plan.checkpoint)
        .trigger(processingTime=trigger)
        .start()
    )
