"""Copy streams to Parquet files, continuously or up to now, and resume where it stopped.

Files are in `stream=…/date=…/batch=N/`, with the date of the message in UTC, whatever the time
zone of the session. Spark stores the range of a batch before it runs it, so a batch that runs again
after a crash has the same messages; it replaces its folders, so that nothing is stored twice. The
position of the archive is in its folder `_checkpoint`, which readers of Parquet ignore.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from liftbridge_aio._runtime.file_lock import FileLock, FileLocked
from liftbridge_aio.spark.core.option_table import (
    COLUMN_NAMES,
    CONNECTION_NAMES,
    ENDING_NAMES,
    SELECTION_NAMES,
    STARTING_NAMES,
)
from liftbridge_aio.spark.core.options import ReadOptions
from liftbridge_aio.spark.errors import InvalidOption

from .checkpoints import NO_BATCH, newest_batch, note_query, other_query
from .compaction import (
    CHECKPOINT,
    PARTITION_COLUMNS,
    ArchiveBroken,
    compact,
    newest_archived_batch,
)
from .source_rows import source_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_STAGING: Final = ".spark-staging-*"
"""Folders in which Spark writes the files of a batch until it commits them."""
_LOCK: Final = "_lock"
_LIMIT_NAME: Final = "maxOffsetsPerTrigger"
_OWN_NAMES: Final = (
    *CONNECTION_NAMES,
    *SELECTION_NAMES,
    *STARTING_NAMES,
    *ENDING_NAMES,
    *COLUMN_NAMES,
    _LIMIT_NAME,
)
"""Options of the source that the fields of a plan or the format of an archive determine."""
_DATE: Final = f"date_from_unix_date(cast(timestampNanos div {86_400 * 10**9} as int))"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivePlan:
    """The streams and settings of an archive.

    Attributes:
        servers: addresses as `host:port,host:port`.
        streams: names of streams; empty if there is a pattern.
        pattern: a regular expression for names of streams, in place of names.
        folder: of the archive.
        start: `earliest` or `latest`: where a new archive begins; an existing one resumes.
        max_messages: most messages of a batch.
        compacted: merge the files of each date when it is over.
        options: further options of the source, such as `failOnDataLoss`.
    """

    servers: str
    streams: tuple[str, ...]
    folder: Path
    pattern: str | None = None
    start: str = "earliest"
    max_messages: int = 500_000
    compacted: bool = True
    options: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse options that the other fields determine.

        Raises:
            InvalidOption: there is one.
        """
        own = {name.lower() for name in _OWN_NAMES}
        for name in self.options:
            if name.lower() in own:
                raise InvalidOption(f"an archive sets the option {name} itself")


def start_archive(
    spark: SparkSession, plan: ArchivePlan, *, every: str | None = None
) -> StreamingQuery:
    """Compact dates that are over, and start to copy.

    Only one query may write to a folder at a time: see `archive_lock`.

    Args:
        spark: a session in which the source is registered.
        plan: the streams and settings.
        every: the interval between batches, such as `30 seconds`; None: copy what is stored now,
            and end.

    Raises:
        ArchiveBroken: the folder has files of an archive, but no checkpoint, or an older one, or
            that of another query: its batches would replace them.
        InvalidOption: a name, the pattern or an option is invalid.
        OSError: the folder cannot be created.
    """
    check_plan(plan)
    plan.folder.mkdir(parents=True, exist_ok=True)  # Spark's own error would be Java's
    _remove_staging(plan.folder)
    if plan.compacted:
        compact(spark, plan.folder)
    messages = source_rows(spark, source_options(plan), "the archive")
    writer = (
        messages.writeStream.foreachBatch(_BatchWriter(plan))
        .option("checkpointLocation", str(plan.folder / CHECKPOINT))
        .queryName(f"archive to {plan.folder.name}")
    )
    if every is None:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=every)
    query = writer.start()
    note_query(plan.folder, query.id)
    return query


@contextmanager
def archive_lock(folder: Path) -> Iterator[None]:
    """Keep other commands from writing to the same archive within the context.

    Two at once would run the same batch and mix their files in its folders. The system releases the
    lock when the process ends, however that happens. Leaving the context, after Spark has ended,
    removes the files of a batch that was interrupted.

    Raises:
        ArchiveBroken: another command holds the lock.
        OSError: the folder cannot be created.
    """
    folder.mkdir(parents=True, exist_ok=True)
    try:
        lock = FileLock(folder / _LOCK)
    except FileLocked:
        raise ArchiveBroken(
            f"another command archives to {folder}; wait for its end, or choose another folder"
        ) from None
    with lock:
        try:
            yield
        finally:
            _remove_staging(folder)


def source_options(plan: ArchivePlan) -> dict[str, str]:
    """Return the options of the source for a plan."""
    which = ("subscribePattern", plan.pattern) if plan.pattern else ("subscribe", _names(plan))
    return {
        **plan.options,
        "servers": plan.servers,
        which[0]: which[1],
        "startingOffsets": plan.start,
        _LIMIT_NAME: str(plan.max_messages),
        **dict.fromkeys(COLUMN_NAMES, "true"),
    }


class _BatchWriter:
    """Writes batches, and compacts a date when the first batch after its end comes."""

    def __init__(self, plan: ArchivePlan) -> None:
        self._plan = plan
        self._today = datetime.now(UTC).date()

    def __call__(self, batch: DataFrame, number: int) -> None:
        today = datetime.now(UTC).date()
        if self._plan.compacted and today != self._today:
            compact(batch.sparkSession, self._plan.folder)
        self._today = today
        write_batch(batch, number, str(self._plan.folder))


def write_batch(batch: DataFrame, number: int, folder: str) -> None:
    """Write one batch; it replaces the folders of an earlier run of the same batch.

    Args:
        batch: rows of the source.
        number: of the batch.
        folder: of the archive.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415 - optional

    rows = (
        # Transactions are read at the place of their commit, which their offsets do not tell.
        batch.withColumn("position", f.monotonically_increasing_id())
        .withColumnRenamed("topic", "stream")
        # From the number: the date of a timestamp would depend on the session's time zone.
        .withColumn("date", f.expr(_DATE))
        .withColumn("batch", f.lit(number))
        # Spark sorts by folder anyway; this way files keep the order of the log.
        .sortWithinPartitions(*PARTITION_COLUMNS, "partition", "position")
    )
    (
        rows.write.mode("overwrite")
        .option("partitionOverwriteMode", "dynamic")
        .partitionBy(*PARTITION_COLUMNS)
        .parquet(folder)
    )


def check_plan(plan: ArchivePlan) -> None:
    """Check what is possible before Spark starts and servers are called.

    Raises:
        ArchiveBroken: see `start_archive`.
        InvalidOption: see `start_archive`.
    """
    check_folder(plan.folder)
    ReadOptions.parse(source_options(plan), streaming=True)


def check_folder(folder: Path) -> None:
    """Check that an archive can be started or resumed in a folder.

    Raises:
        ArchiveBroken: see `start_archive`.
    """
    planned = newest_batch(folder / CHECKPOINT / "offsets")
    if planned != NO_BATCH:
        _check_checkpoint(folder, planned)
        return
    if folder.exists() and not folder.is_dir():
        raise ArchiveBroken(f"{folder} is not a folder")
    files = next(folder.glob("stream=*"), None)
    if files is not None:
        raise ArchiveBroken(
            f"{folder} has files of an archive, such as {files.name}, but no folder {CHECKPOINT}:"
            " a new archive would replace them. Choose another folder, or restore that one"
        )


def _check_checkpoint(folder: Path, planned: int) -> None:
    """Refuse a checkpoint whose next batches would replace others that the files have."""
    written = newest_archived_batch(folder)
    if written == NO_BATCH:
        return
    problem = other_query(folder / CHECKPOINT, folder)
    if problem is None and written > planned:
        problem = (
            f"{folder / CHECKPOINT} is at batch {planned}, and the archive has batch {written}"
        )
    if problem is not None:
        raise ArchiveBroken(
            f"{problem}: new batches would replace some of the archive and repeat others. Restore"
            f" the newest {CHECKPOINT} of this archive, or choose another folder, which gets a copy"
            " of its own"
        )


def _remove_staging(folder: Path) -> None:
    for left in folder.glob(_STAGING):  # of interrupted batches
        shutil.rmtree(left, ignore_errors=True)


def _names(plan: ArchivePlan) -> str:
    return ",".join(plan.streams)
