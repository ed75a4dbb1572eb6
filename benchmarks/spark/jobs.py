"""The jobs that Spark is measured with, done in the session of `program`."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from .usage import Usage, descendants, usage, worker_memory

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Words = Mapping[str, Any]
Figures = dict[str, Any]

_PAUSE: Final = 1
_NOOP: Final = "noop"


class WrongCount(Exception):
    """Spark did not see as many rows as there are; the text says how many."""


class QueryTooSlow(Exception):
    """A streaming query did not come to its end in time."""


def read(spark: SparkSession, words: Words) -> Figures:
    """Read all rows of a source once, and throw them away."""
    from pyspark.sql import Observation  # noqa: PLC0415 - optional
    from pyspark.sql.functions import count, lit  # noqa: PLC0415 - optional

    seen = Observation()
    watch = _Watch()
    loaded = spark.read.format(words["format"]).options(**words["options"]).load()
    counted = loaded.observe(seen, count(lit(1)).alias("rows"))
    counted.write.format(_NOOP).mode("overwrite").save()
    figures = watch.stop(words["rows"])
    _expect(words["rows"], seen.get["rows"])
    return figures


def write(spark: SparkSession, words: Words) -> Figures:
    """Write rows that Spark makes up to a sink, once."""
    watch = _Watch()
    rows = _made_up(spark, words)
    rows.write.format(words["format"]).mode("append").options(**words["options"]).save()
    return watch.stop(words["rows"])


def stream(spark: SparkSession, words: Words) -> Figures:
    """Run a streaming query through all that there is, and tell of each of its batches."""
    source, sink = words["source"], words["sink"]
    loaded = spark.readStream.format(source["format"]).options(**source["options"]).load()
    if columns := words.get("columns"):
        loaded = loaded.select(*columns)
    watch = _Watch()
    query = (
        loaded.writeStream.format(sink["format"])
        .options(**sink["options"])
        .option("checkpointLocation", words["checkpoint"])
        .trigger(availableNow=True)
        .start()
    )
    deadline = time.monotonic() + words["timeout"]
    memory: list[dict[int, int]] = []
    try:
        while not query.awaitTermination(_PAUSE):
            if time.monotonic() > deadline:
                raise QueryTooSlow(words["timeout"])
            if words.get("memory"):
                memory.append(worker_memory())
        batches = [
            {"rows": each["numInputRows"], "milliseconds": each["durationMs"]["triggerExecution"]}
            for each in query.recentProgress
            if each["numInputRows"]
        ]
    finally:
        query.stop()
    figures = watch.stop(words["rows"])
    return figures | {"batches": batches, "memory": memory}


def topic(spark: SparkSession, words: Words) -> Figures:
    """Make a topic in Kafka; the client of Spark's connector does it."""
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 - Java is not reached otherwise
    settings = jvm.java.util.Properties()
    settings.put("bootstrap.servers", words["servers"])
    admin = jvm.org.apache.kafka.clients.admin.AdminClient.create(settings)
    try:
        new = jvm.org.apache.kafka.clients.admin.NewTopic(
            words["topic"],
            jvm.java.util.Optional.of(words["partitions"]),
            jvm.java.util.Optional.empty(),
        )
        admin.createTopics(jvm.java.util.List.of(new)).all().get()
    finally:
        admin.close()
    return {}


JOBS: Final[dict[str, Callable[[SparkSession, Words], Figures]]] = {
    "read": read,
    "write": write,
    "stream": stream,
    "topic": topic,
}


class _Watch:
    """Time and processor time since it was made."""

    def __init__(self) -> None:
        self._usage = _usage_now()
        self._began = time.monotonic()

    def stop(self, rows: int) -> Figures:
        seconds = time.monotonic() - self._began
        used = _usage_now().since(self._usage)
        return {
            "rows": rows,
            "seconds": seconds,
            "python_cpu_seconds": used.python,
            "java_cpu_seconds": used.java,
        }


def _usage_now() -> Usage:
    return usage(descendants())


def _made_up(spark: SparkSession, words: Words) -> DataFrame:
    from pyspark.sql.functions import lit  # noqa: PLC0415 - optional

    numbers = spark.range(0, words["rows"], 1, words["tasks"])
    return numbers.select(lit(bytearray(b"x" * words["size"])).alias("value"))


def _expect(rows: int, seen: int) -> None:
    if rows != seen:
        raise WrongCount(f"{seen:,} rows came, not {rows:,}")
