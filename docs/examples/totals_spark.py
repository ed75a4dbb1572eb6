"""A Spark job: add up what each customer ordered, from one stream into another.

Run it again and again: its checkpoint makes it continue behind what it has processed. Set
`PYSPARK_PYTHON` to this Python.
"""

from __future__ import annotations

import asyncio
import os
import tempfile

from pyspark.sql import SparkSession
from pyspark.sql import functions as sql

from liftbridge_aio import Client
from liftbridge_aio.spark import register

SERVERS = os.environ.get("LIFTBRIDGE_SERVERS", "127.0.0.1:9292")
CHECKPOINT = os.environ.get("CHECKPOINT") or tempfile.mkdtemp()


async def prepare() -> None:
    """Create the streams, and publish some orders."""
    async with Client.from_env() as client:
        for stream in ("orders", "totals"):
            await client.create_stream(stream, exist_ok=True)
        for customer, cents in [(b"ann", b"250"), (b"bob", b"100"), (b"ann", b"50")]:
            await client.publish("orders", cents, key=customer)


async def show() -> None:
    """Print the totals."""
    async with Client.from_env() as client:
        async for total in client.read("totals"):
            print(total.key.decode(), total.value.decode())


asyncio.run(prepare())
spark = SparkSession.builder.master("local[2]").getOrCreate()
register(spark)
orders = (
    spark.readStream.format("liftbridge")
    .option("servers", SERVERS)
    .option("startingOffsets", "earliest")
    .load("orders")
)
totals = (
    orders.groupBy(sql.col("key").cast("string").alias("key"))
    .agg(sql.sum(sql.col("value").cast("string").cast("bigint")).alias("cents"))
    .select("key", sql.col("cents").cast("string").alias("value"))
)
query = (
    totals.writeStream.format("liftbridge")
    .option("servers", SERVERS)
    .option("stream", "totals")
    .option("checkpointLocation", CHECKPOINT)
    .outputMode("complete")
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
asyncio.run(show())
