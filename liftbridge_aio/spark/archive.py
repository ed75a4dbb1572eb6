"""An archive: streams copied to Parquet files, for as long as one likes and from where it was left.

Files lie in `stream=…/date=…/batch=N/`, the date being that of the message in UTC, whatever the
time zone of the session. Spark notes the range of a batch before it runs it, so a batch that runs
again after a crash has the same messages; it replaces its folders, and nothing is there twice.
Where the archive stands is kept in its folder `_checkpoint`, which Spark and others pass over when
they read Parquet.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from liftbridge_aio.errors import UsageError

from .errors import InvalidOption
from .option_table import (
    COLUMN_NAMES,
    CONNECTION_NAMES,
    ENDING_NAMES,
    SELECTION_NAMES,
    STARTING_NAMES,
)
from .options import ReadOptions

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

CHECKPOINT: Final = "_checkpoint"
PARTITION_COLUMNS: Final = ("stream", "date", "batch")

_STAGING: Final = ".spark-staging-*"
"""Where Spark keeps the files of a batch until all of them are written."""
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
"""Options of the source that a plan has words of its own for, or that make what an archive is."""
_DATE: Final = f"date_from_unix_date(cast(timestampNanos div {86_400 * 10**9} as int))"


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
        options: further options of the source, such as `failOnDataLoss`.
    """

    servers: str
    streams: tuple[str, ...]
    folder: Path
    pattern: str | None = None
    start: str = "earliest"
    max_messages: int = 500_000
    options: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse options of the source that the rest of the plan makes.

        Raises:
            InvalidOption: there is one.
        """
        own = {name.lower() for name in _OWN_NAMES}
        for name in self.options:
            if name.lower() in own:
                text = f"an archive sets the option {name} itself"
                raise InvalidOption(text)


def start_archive(
    spark: SparkSession, plan: ArchivePlan, *, every: str | None = None
) -> StreamingQuery:
    """Start to copy. There must be one at a time for a folder: see `sole_archive`.

    Args:
        spark: a session in which the source is registered.
        plan: what, and to where.
        every: how long to wait from batch to batch, such as `30 seconds`, for an archive that
            follows its streams; None: copy what there is now, and end.

    Raises:
        ArchiveBroken: the folder holds files of an archive whose checkpoint is gone: batches would
            be numbered anew and replace them.
        InvalidOption: a name, the pattern or an option makes no sense.
        OSError: the folder cannot be made.
    """
    check_plan(plan)
    plan.folder.mkdir(parents=True, exist_ok=True)  # where Spark cannot, it says so in Java
    _remove_staging(plan.folder)
    messages = spark.readStream.format("liftbridge").options(**source_options(plan)).load()
    folder = str(plan.folder)
    writer = (
        messages.writeStream.foreachBatch(lambda batch, number: write_batch(batch, number, folder))
        .option("checkpointLocation", str(plan.folder / CHECKPOINT))
        .queryName(f"archive to {plan.folder.name}")
    )
    if every is None:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=every).start()


@contextmanager
def sole_archive(folder: Path) -> Iterator[None]:
    """Keep other commands from writing to the same archive meanwhile, where the system can.

    Afterwards, which is when Spark has ended, nothing is left of a batch that was given up.

    Two at once would both run the batch that is next, and put each other's files into its folders.
    The end of the process ends it, in whatever way.

    Raises:
        ArchiveBroken: another one is at it.
        OSError: the folder cannot be made.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / _LOCK).open("wb") as lock:
        if fcntl is not None:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                text = f"another command archives to {folder}; let it end, or choose another folder"
                raise ArchiveBroken(text) from None
        try:
            yield
        finally:
            _remove_staging(folder)


def source_options(plan: ArchivePlan) -> dict[str, str]:
    """Return the options with which the source reads what a plan archives."""
    which = ("subscribePattern", plan.pattern) if plan.pattern else ("subscribe", _names(plan))
    return {
        **plan.options,
        "servers": plan.servers,
        which[0]: which[1],
        "startingOffsets": plan.start,
        _LIMIT_NAME: str(plan.max_messages),
        **dict.fromkeys(COLUMN_NAMES, "true"),
    }


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
        # By number: the date of a timestamp would be that of the session's time zone.
        .withColumn("date", f.expr(_DATE))
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


def check_plan(plan: ArchivePlan) -> None:
    """Check what can be known before Spark runs and a server is asked.

    Raises:
        ArchiveBroken: see `start_archive`.
        InvalidOption: see `start_archive`.
    """
    check_folder(plan.folder)
    ReadOptions.parse(source_options(plan), streaming=True)


def check_folder(folder: Path) -> None:
    """Check that an archive can begin, or go on, in a folder.

    Raises:
        ArchiveBroken: see `start_archive`.
    """
    if next((folder / CHECKPOINT / "offsets").glob("[0-9]*"), None) is not None:
        return
    if folder.exists() and not folder.is_dir():
        text = f"{folder} is no folder"
        raise ArchiveBroken(text)
    files = next(folder.glob("stream=*"), None)
    if files is not None:
        text = (
            f"{folder} holds an archive, such as {files.name}, without its folder {CHECKPOINT}:"
            " a new one would replace its files. Choose another folder, or bring that one back"
        )
        raise ArchiveBroken(text)


def _remove_staging(folder: Path) -> None:
    for left in folder.glob(_STAGING):  # of batches that were cut off
        shutil.rmtree(left, ignore_errors=True)


def _names(plan: ArchivePlan) -> str:
    return ",".join(plan.streams)
