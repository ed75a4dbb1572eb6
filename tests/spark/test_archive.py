"""An archive holds every message once, wherever it was cut off."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from liftbridge_aio import Record
from liftbridge_aio.spark.archive import (
    CHECKPOINT,
    ArchiveBroken,
    ArchivePlan,
    check_folder,
    start_archive,
)
from spark.log_client import LogClient

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STOP = 60
"""Seconds after which a query has failed."""


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return tmp_path / "archive"


@pytest.fixture
def run(spark: SparkSession, log: LogClient, archive: Path) -> Callable[..., None]:
    """Archives streams up to now."""

    def run(*streams: str, pattern: str | None = None, max_messages: int = 500_000) -> None:
        plan = ArchivePlan(
            servers=log.address,
            streams=streams,
            pattern=pattern,
            folder=archive,
            max_messages=max_messages,
        )
        query = start_archive(spark, plan)
        assert query.awaitTermination(STOP)

    return run


def offsets(archive: Path) -> Counter[tuple[str, int, int]]:
    """How often each message is in the files."""
    found: Counter[tuple[str, int, int]] = Counter()
    for file in archive.glob("stream=*/date=*/batch=*/*.parquet"):
        stream = file.parts[-4].removeprefix("stream=")
        table = pq.ParquetFile(file).read(["partition", "offset"])
        found.update((stream, row["partition"], row["offset"]) for row in table.to_pylist())
    return found


def batches(archive: Path) -> set[int]:
    return {int(folder.name.removeprefix("batch=")) for folder in archive.glob("*/*/batch=*")}


def each_once(stream: str, *counts: int) -> Counter[tuple[str, int, int]]:
    return Counter(
        (stream, partition, offset)
        for partition, count in enumerate(counts)
        for offset in range(count)
    )


def test_an_archive_holds_all_of_a_message(
    spark: SparkSession, log: LogClient, run: Callable[..., None], archive: Path, stream_name: str
) -> None:
    log.create(stream_name, partitions=2)
    log.publish(stream_name, [Record(b"v", b"k", {"h": b"1"}, 1), Record(b"\xff", partition=0)])
    run(stream_name)
    [first, second] = spark.read.parquet(str(archive)).orderBy("partition").collect()
    stored = log.read(stream_name, 1)[0]
    assert (first.partition, bytes(first.value)) == (0, b"\xff")
    assert (second.stream, second.partition, second.offset) == (stream_name, 1, 0)
    assert (bytes(second.key), bytes(second.value)) == (b"k", b"v")
    assert [(name, bytes(value)) for name, value in second.headers if name == "h"] == [("h", b"1")]
    assert second.subject == stored.subject
    assert second.timestampNanos == stored.timestamp
    assert second.date == stored.time.date()
    assert second.batch == 0


def test_the_next_run_goes_on_where_the_last_one_ended(
    log: LogClient, run: Callable[..., None], archive: Path, stream_name: str
) -> None:
    log.create(stream_name, partitions=2)
    log.publish(stream_name, [b"x"] * 30, partition=0)
    run(stream_name, max_messages=10)
    assert offsets(archive) == each_once(stream_name, 30)
    assert batches(archive) == {0, 1, 2}
    log.publish(stream_name, [b"x"] * 5, partition=1)
    run(stream_name)
    assert offsets(archive) == each_once(stream_name, 30, 5)
    assert batches(archive) == {0, 1, 2, 3}
    run(stream_name)  # with nothing new
    assert batches(archive) == {0, 1, 2, 3}


def test_a_batch_that_runs_again_replaces_what_it_wrote(
    log: LogClient, run: Callable[..., None], archive: Path, stream_name: str
) -> None:
    log.create(stream_name)
    log.publish(stream_name, [b"x"] * 20)
    run(stream_name, max_messages=10)
    commits = archive / CHECKPOINT / "commits"
    for file in (commits / "1", commits / ".1.crc"):  # as if it had ended before it noted this
        file.unlink(missing_ok=True)
    log.publish(stream_name, [b"x"] * 7)
    run(stream_name)
    assert offsets(archive) == each_once(stream_name, 27)
    assert batches(archive) == {0, 1, 2}


def test_streams_of_a_pattern_lie_side_by_side(
    log: LogClient, run: Callable[..., None], archive: Path, stream_name: str
) -> None:
    names = [log.create(f"{stream_name}.{kind}") for kind in ("eu", "us")]
    for name, count in zip(names, (3, 4), strict=True):
        log.publish(name, [b"x"] * count)
    run(pattern=f"{stream_name}[.].*")
    assert offsets(archive) == each_once(names[0], 3) + each_once(names[1], 4)


def test_an_archive_without_its_checkpoint_is_not_begun_anew(archive: Path) -> None:
    check_folder(archive)
    (archive / "stream=orders").mkdir(parents=True)
    with pytest.raises(ArchiveBroken, match=f"stream=orders, without its folder {CHECKPOINT}"):
        check_folder(archive)
    (archive / CHECKPOINT / "offsets").mkdir(parents=True)
    check_folder(archive)
