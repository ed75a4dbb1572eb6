"""The rows of a source of a pipeline, and the count of acks that it skips."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from liftbridge_aio.spark.core.option_table import folded
from liftbridge_aio.spark.core.options import OnMalformed
from liftbridge_aio.spark.session.query_progress import BAD_RECORDS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_OPTION: Final = "onMalformed"


def source_rows(spark: SparkSession, options: Mapping[str, str], name: str) -> DataFrame:
    """Return the rows of streams. Malformed acks that are skipped count as bad records.

    Args:
        spark: a session in which the source is registered.
        options: of Spark's source.
        name: of the source, for the count.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415 - optional

    reader = spark.readStream.format("liftbridge").options(**options)
    policy = folded(options).get(_OPTION.lower(), "").strip().lower()
    if policy != OnMalformed.SKIP.value:
        return reader.load()
    # Sources have no metrics of their own in Spark, so the acks become rows, which are counted.
    rows = reader.option(_OPTION, OnMalformed.EMIT.value).load()
    malformed = f.col("value").isNull()
    counted = rows.observe(f"{BAD_RECORDS}acks of {name}", f.count_if(malformed).alias("bad"))
    return counted.where(~malformed)
