"""Compact the closed dates of an archive, and read an archive while that happens.

The many small files of a stream's date become one folder below `_compacted/`. The file
`_manifest.json` says for each stream and date which folder that is and up to which batch it
replaces others; it is replaced atomically when the folder is complete. So those who read by the
manifest see each message once at any moment. What a compaction replaced is deleted by one that runs
an hour later or more, so that queries that read it meanwhile can end.

A date is closed when it is over in UTC. Batches that arrive for it later are read beside the
compacted folder until the next compaction merges them.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from liftbridge_aio.errors import UsageError
from liftbridge_aio.spark.core.options import ExtraColumns
from liftbridge_aio.spark.read.schema import spark_types

from .checkpoints import NO_BATCH, newest_batch
from .json_file import read_json, replace_json

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CHECKPOINT: Final = "_checkpoint"
PARTITION_COLUMNS: Final = {"stream": "string", "date": "date", "batch": "int"}
_EXTRA: Final = ExtraColumns(headers=True, subject=True, timestamp_nanos=True)
_COLUMNS: Final = {
    **{name: kind for name, kind in spark_types(_EXTRA).items() if name != "topic"},
    "position": "bigint",
    **PARTITION_COLUMNS,
}
"""The columns of an archive, with their types."""
ORDER: Final = ("partition", "batch", "position", "offset")
"""The columns by which the messages of a stream are in the order of the log."""

_MANIFEST: Final = "_manifest.json"
_COMPACTED: Final = "_compacted"
_BATCHES: Final = "stream=*/date=*/batch=*"
_VERSION: Final = 1
_GRACE: Final = 3600.0
"""Least seconds between the replacement of files and their deletion."""
_ROWS_PER_FILE: Final = 5_000_000


class ArchiveBroken(UsageError):
    """The folder has an archive that cannot be used, or is in use, or is no folder."""


@dataclass(frozen=True, slots=True)
class _Compacted:
    """The compacted folder of a stream and date."""

    through: int
    """The newest batch in it; folders of earlier ones are replaced by it."""
    at: float
    """When it replaced them, in seconds since 1970."""

    def folder(self, day: str) -> str:
        return f"{_COMPACTED}/{day}/through={self.through}"


def read_archive(spark: SparkSession, folder: str | Path) -> DataFrame:
    """Return the messages of an archive, each once, also while it is written to and compacted.

    Batches that are not complete are left out. Sort each `stream` by `partition`, `batch`,
    `position` and `offset` to get the order in which its messages were read.

    Args:
        spark: any session.
        folder: of the archive.

    Raises:
        ArchiveBroken: there is no archive, or it was made by a newer version of this package.
    """
    folder = Path(folder).resolve()
    if not folder.is_dir():
        raise ArchiveBroken(f"{folder} is not the folder of an archive")
    compacted = _manifest(folder)
    paths = [one.folder(day) for day, one in compacted.items()]
    rows = _read(spark, folder / _COMPACTED, [folder / path for path in paths], "through int")
    return rows.unionByName(_read(spark, folder, _live(folder, compacted)))


def compact(spark: SparkSession, folder: Path, before: date | None = None) -> int:
    """Compact the dates that are over and have new batches; return how many folders were written.

    Only one process may do this at a time, and only while no batch is written: see `archive_lock`.

    Args:
        spark: any session.
        folder: of the archive.
        before: the date before which dates are over; None: today, in UTC.

    Raises:
        ArchiveBroken: the archive was made by a newer version of this package.
    """
    compacted = _manifest(folder)
    _delete_replaced(folder, compacted)
    before = before or datetime.now(UTC).date()
    by_day: dict[str, list[Path]] = {}
    for path in _live(folder, compacted):
        by_day.setdefault(path.parent.relative_to(folder).as_posix(), []).append(path)
    count = 0
    for day, paths in sorted(by_day.items()):
        last = compacted.get(day)
        if _date(day) >= before or (last is None and len(paths) == 1):
            continue
        rows = _read(spark, folder, paths)
        if last is not None:
            old = [folder / last.folder(day)]
            rows = rows.unionByName(_read(spark, folder / _COMPACTED, old, "through int"))
        after = _Compacted(max(map(_batch, paths)), time.time())
        (
            rows.drop("stream", "date")
            .coalesce(1)
            .sortWithinPartitions(*ORDER)
            .write.mode("overwrite")
            .option("maxRecordsPerFile", _ROWS_PER_FILE)
            .parquet(str(folder / after.folder(day)))
        )
        compacted[day] = after
        _write_manifest(folder, compacted)
        count += 1
    return count


def newest_archived_batch(folder: Path) -> int:
    """Return the newest batch of an archive, complete or not; `NO_BATCH` if it has none.

    Raises:
        ArchiveBroken: the archive was made by a newer version of this package.
    """
    compacted = (one.through for one in _manifest(folder).values())
    return max((*map(_batch, folder.glob(_BATCHES)), *compacted), default=NO_BATCH)


def last_complete_batch(folder: Path) -> int | None:
    """Return the newest batch that is complete; None if there is no checkpoint of Spark."""
    commits = folder / CHECKPOINT / "commits"
    return newest_batch(commits) if commits.is_dir() else None


def _read(spark: SparkSession, base: Path, paths: list[Path], more: str | None = None) -> DataFrame:
    # Without a schema Spark would guess the type of a stream from its name.
    schema = ", ".join(f"`{name}` {kind}" for name, kind in _COLUMNS.items())
    if not paths:
        return spark.createDataFrame([], schema)
    names = map(str, paths)
    reader = spark.read.schema(schema if more is None else f"{schema}, {more}")
    return reader.option("basePath", str(base)).parquet(*names).select(*_COLUMNS)


def _live(folder: Path, compacted: dict[str, _Compacted]) -> list[Path]:
    """Return the folders of complete batches that are in no compacted folder."""
    last = last_complete_batch(folder)
    return [
        path
        for path in sorted(folder.glob(_BATCHES))
        if (last is None or _batch(path) <= last) and not _is_replaced(folder, path, compacted)
    ]


def _is_replaced(folder: Path, path: Path, compacted: dict[str, _Compacted]) -> bool:
    one = compacted.get(path.parent.relative_to(folder).as_posix())
    return one is not None and _batch(path) <= one.through


def _delete_replaced(folder: Path, compacted: dict[str, _Compacted]) -> None:
    for path in _replaced(folder, compacted):
        shutil.rmtree(path, ignore_errors=True)
    for day in compacted:
        with suppress(OSError):  # batches are in it
            (folder / day).rmdir()


def _replaced(folder: Path, compacted: dict[str, _Compacted]) -> Iterator[Path]:
    for day, one in compacted.items():
        if time.time() - one.at < _GRACE:
            continue
        yield from (path for path in (folder / day).glob("batch=*") if _batch(path) <= one.through)
        kept = folder / one.folder(day)
        yield from (path for path in kept.parent.glob("through=*") if path != kept)


def _manifest(folder: Path) -> dict[str, _Compacted]:
    content = read_json(folder / _MANIFEST)
    if content is None:
        return {}
    if content.get("version") != _VERSION:
        raise ArchiveBroken(
            f"{folder / _MANIFEST} has version {content.get('version')}, not {_VERSION}"
        )
    return {day: _Compacted(**one) for day, one in content["compacted"].items()}


def _write_manifest(folder: Path, compacted: dict[str, _Compacted]) -> None:
    days = {day: {"through": one.through, "at": one.at} for day, one in compacted.items()}
    replace_json(folder / _MANIFEST, {"version": _VERSION, "compacted": days})


def _batch(path: Path) -> int:
    return int(path.name.removeprefix("batch="))


def _date(day: str) -> date:
    return date.fromisoformat(day.rpartition("date=")[2])
