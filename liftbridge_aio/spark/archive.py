"""An archive: streams copied to Parquet files, for as long as one likes and from where it was left.

Files lie in `stream=…/date=…/batch=N/`, the date being that of the message in UTC. Spark notes the
range of a batch before it runs it, so a batch that runs again after a crash has the same messages;
it replaces its folders, and nothing is there twice. Where the archive stands is kept in its folder
`_checkpoint`, which Spark and others pass over when they read Parquet.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from liftbridge_aio.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

CHECKPOINT: Final = "_checkpoint"
PARTITION_COLUMNS: Final = ("stream", "date", "batch")


class ArchiveBroken(UsageError):
    """The folder holds an archive that cannot be continued, or something else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivePlan:
    """What is archived, and to where.

    Attributes:
        servers: addresses as `host:port,host:port`.
        streams: names of streams; empty if there is a pattern.
        pattern: a regular expression for names of streams, in place of names.
        folder: where the archive is, or will be.
        start: `earliest` or `latest`: where a new archive begins; an old one goes on where it was.
        max_messages: the most that one batch takes.
        options: further options of the source.
    """

    servers: str
    streams: tuple[str, ...]
    folder: Path
    pattern: str | None = None
    start: str = "earliest"
    max_messages: int = 500_000
    options: Mapping[str, str] = field(default_factory=dict)


def start_archive(
    spark: SparkSession, plan: ArchivePlan, *, every: str | None = None
) -> StreamingQuery:
    """Start to copy; a second one at the same time for one folder is not for Spark to notice.

    Args:
        spark: a session in which the source is registered.
        plan: what, and to where.
        every: how long to wait from batch to batch, such as `30 seconds`, for an archive that
            follows its streams; None: copy what there is now, and end.

    Raises:
        ArchiveBroken: the folder holds files of an archive whose checkpoint is gone: batches would
            be numbered anew and replace them.
    """
    check_folder(plan.folder)
    which = ("subscribePattern", plan.pattern) if plan.pattern else ("subscribe", _names(plan))
    messages = (
        spark.readStream.format("liftbridge")
        .options(**plan.options)
        .option("servers", plan.servers)
        .option(*which)
        .option("startingOffsets", plan.start)
        .option("maxOffsetsPerTrigger", plan.max_messages)
        .option("includeHeaders", "true")
        .option("includeSubject", "true")
        .option("includeTimestampNanos", "true")
        .load()
    )
    folder = str(plan.folder)
    writer = (
        messages.writeStream.foreachBatch(lambda batch, number: write_batch(batch, number, folder))
        .option("checkpointLocation", str(plan.folder / CHECKPOINT))
        .queryName(f"archive to {plan.folder.name}")
    )
    if every is None:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=every).start()


def write_batch(batch: DataFrame, number: int, folder: str) -> None:
    """Write one batch; folders of the same batch that are there already are replaced.

    Args:
        batch: rows as they are read.
        number: the number of the batch.
        folder: the archive.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415 - optional

    rows = (
        batch.withColumnRenamed("topic", "stream")
        .withColumn("date", f.to_date("timestamp"))
        .withColumn("batch", f.lit(number))
        # Spark sorts by folder in any case; this way files keep the order of the log.
        .sortWithinPartitions(*PARTITION_COLUMNS, "partition", "offset")
    )
    (
        rows.write.mode("overwrite")
        .option("partitionOverwriteMode", "dynamic")
        .partitionBy(*PARTITION_COLUMNS)
        .parquet(folder)
    )


def check_folder(folder: Path) -> None:
    """Check that an archive can begin, or go on, in a folder.

    Raises:
        ArchiveBroken: see `start_archive`.
    """
    if (folder / CHECKPOINT / "offsets").is_dir():
        return
    files = next(folder.glob("stream=*"), None)
    if files is not None:
        text = (
            f"{folder} holds an archive, such as {files.name}, without its folder {CHECKPOINT}:"
            " a new one would replace its files. Choose another folder, or bring that one back"
        )
        raise ArchiveBroken(text)


def _names(plan: ArchivePlan) -> str:
    return ",".join(plan.streams)
