"""An archive holds every message once, wherever it was cut off."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

import liftbridge_aio
from liftbridge_aio import Record
from liftbridge_aio.spark.errors import InvalidOption
from liftbridge_aio.spark.pipelines.archive import (
    ArchivePlan,
    check_folder,
    start_archive,
    write_batch,
)
from liftbridge_aio.spark.pipelines.compaction import CHECKPOINT, ArchiveBroken
from liftbridge_aio.spark.pipelines.json_file import replace_json
from support.spark.broker_thread import BrokerThread
from support.spark.log_client import LogClient

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ARCHIVE = (sys.executable, "-m", "liftbridge_aio", "pipeline", "archive")
STOP = 100
"""Seconds after which a query has failed."""


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return tmp_path / "archive"


@pytest.fixture
def run(spark: SparkSession, log: LogClient, archive: Path) -> Callable[..., None]:
    """Archives streams up to now."""

    def run(
        *streams: str,
        pattern: str | None = None,
        max_messages: int = 500_000,
        options: Mapping[str, str] | None = None,
    ) -> None:
        plan = ArchivePlan(
            servers=log.address,
            streams=streams,
            pattern=pattern,
            folder=archive,
            max_messages=max_messages,
            options=options or {},
        )
        query = start_archive(spark, plan)
        assert query.awaitTermination(STOP)

    return run


def offsets(archive: Path) -> Counter[tuple[str, int, int]]:
    """Return the number of occurrences of each message in the files."""
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


def test_an_archive_holds_all_of_a_message_beside_other_streams(
    spark: SparkSession, log: LogClient, run: Callable[..., None], archive: Path, stream_name: str
) -> None:
    one, other = (log.create(f"{stream_name}.{kind}", partitions=2) for kind in ("eu", "us"))
    log.publish(one, [Record(b"v", b"k", {"h": b"1"}, 1), Record(b"\xff", partition=0)])
    log.publish(other, [b"x"] * 4, partition=0)
    run(pattern=f"{stream_name}[.].*")
    assert offsets(archive) == each_once(one, 1, 1) + each_once(other, 4)
    rows = spark.read.parquet(str(archive)).where(f"stream = '{one}'")
    [first, second] = rows.orderBy("partition").collect()
    stored = log.read(one, 1)[0]
    assert (first.partition, bytes(first.value)) == (0, b"\xff")
    assert (second.stream, second.partition, second.offset) == (one, 1, 0)
    assert (bytes(second.key), bytes(second.value)) == (b"k", b"v")
    assert [(name, bytes(value)) for name, value in second.headers if name == "h"] == [("h", b"1")]
    assert second.subject == stored.subject
    assert second.timestampNanos == stored.timestamp
    assert second.date == stored.time.date()
    assert second.batch == 0


def test_the_next_run_goes_on_and_replaces_what_a_cut_off_batch_wrote(
    log: LogClient, run: Callable[..., None], archive: Path, stream_name: str
) -> None:
    log.create(stream_name, partitions=2)
    log.publish(stream_name, [b"x"] * 30, partition=0)
    run(stream_name, max_messages=10)
    assert offsets(archive) == each_once(stream_name, 30)
    assert batches(archive) == {0, 1, 2}
    commits = archive / CHECKPOINT / "commits"
    for file in (commits / "2", commits / ".2.crc"):  # as if it had ended before it noted this
        file.unlink(missing_ok=True)
    [last] = archive.glob("stream=*/date=*/batch=2")
    [written] = last.glob("*.parquet")
    written.with_name("part-of-it.parquet").write_bytes(written.read_bytes()[:100])
    (archive / ".spark-staging-1" / "stream=s").mkdir(parents=True)
    log.publish(stream_name, [b"x"] * 5, partition=1)
    assert cut_off(archive) == {2}
    run(stream_name)
    assert offsets(archive) == each_once(stream_name, 30, 5)
    assert batches(archive) == {0, 1, 2, 3}
    assert not list(archive.glob(".spark-staging-*"))
    run(stream_name)  # with nothing new
    assert offsets(archive) == each_once(stream_name, 30, 5)
    assert batches(archive) == {0, 1, 2, 3}


def test_a_checkpoint_that_does_not_fit_the_archive_is_refused(
    log: LogClient, run: Callable[..., None], archive: Path, tmp_path: Path, stream_name: str
) -> None:
    """An older copy would write other messages into batches that are there, and repeat the rest."""
    log.create(stream_name)
    checkpoint, older, newest = archive / CHECKPOINT, tmp_path / "older", tmp_path / "newest"
    log.publish(stream_name, [b"x"] * 10)
    run(stream_name, max_messages=10)
    shutil.copytree(checkpoint, older)
    log.publish(stream_name, [b"x"] * 20)
    run(stream_name, max_messages=10)
    checkpoint.rename(newest)

    def refused(problem: str) -> None:
        with pytest.raises(ArchiveBroken, match=problem) as caught:
            run(stream_name)
        assert "choose another folder" in str(caught.value)

    shutil.copytree(older, checkpoint)
    refused("is at batch 0, and the archive has batch 2")
    for folder in archive.glob("stream=*/date=*/batch=2"):  # as compaction leaves the archive
        day = folder.parent.relative_to(archive).as_posix()
        folder.rename(tmp_path / "batch=2")
        replace_json(
            archive / "_manifest.json",
            {"version": 1, "compacted": {day: {"through": 2, "at": time.time()}}},
        )
        refused("is at batch 0, and the archive has batch 2")
        (archive / "_manifest.json").unlink()
        (tmp_path / "batch=2").rename(folder)
    shutil.rmtree(checkpoint)

    shutil.copytree(newest, checkpoint)
    (checkpoint / "metadata").write_text('{"id":"another"}')
    refused("is that of query another")
    shutil.rmtree(checkpoint)

    newest.rename(checkpoint)
    run(stream_name)
    assert offsets(archive) == each_once(stream_name, 30)


def cut_off(archive: Path) -> set[int]:
    """The batches that Spark began and did not end."""
    begun, ended = (
        {int(file.name) for file in (archive / CHECKPOINT / name).glob("[0-9]*")}
        for name in ("offsets", "commits")
    )
    return begun - ended


BY_HAND = pytest.mark.skipif(
    "LIFTBRIDGE_BY_HAND" not in os.environ,
    reason="starts Spark twice; run it by hand with LIFTBRIDGE_BY_HAND=1",
)
KILLED = {
    "rows_are_written": ".spark-staging-*/**/*.parquet",
    "folders_are_replaced": "stream=*/date=*/batch=1",
}
"""The state of the second batch when the process is killed."""


@BY_HAND
@pytest.mark.spark
@pytest.mark.timeout(400)
@pytest.mark.parametrize("there", KILLED.values(), ids=KILLED)
def test_an_archive_killed_during_a_batch_holds_each_message_once(
    own_broker: BrokerThread, archive: Path, there: str
) -> None:
    names = [f"orders-{number:02}" for number in range(12)]
    with LogClient(own_broker.address) as log:
        for name in names:
            log.create(name)
            log.publish(name, [b"x"] * 30)
    flags = ("--to", str(archive), "--servers", own_broker.address, "--max-messages", "120")
    command = [*ARCHIVE, *names, *flags, "--master", "local[1]"]
    root = str(Path(liftbridge_aio.__file__).parent.parent)
    variables = {**os.environ, "PYTHONPATH": root}
    process = subprocess.Popen(
        command, env=variables, stdout=subprocess.DEVNULL, start_new_session=True
    )
    try:
        second = archive / CHECKPOINT / "offsets" / "1"
        while not (second.exists() and next(archive.glob(there), None)):
            assert process.poll() is None
            time.sleep(0.001)
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # its Java process too
        process.wait(STOP)
    assert cut_off(archive) == {1}
    subprocess.run(command, env=variables, check=True, timeout=200)
    assert offsets(archive) == sum((each_once(name, 30) for name in names), Counter())
    assert batches(archive) == {0, 1, 2}
    assert not list(archive.glob(".spark-staging-*"))


def test_an_archive_without_its_checkpoint_is_not_begun_anew(archive: Path) -> None:
    check_folder(archive)
    (archive / "stream=orders").mkdir(parents=True)
    with pytest.raises(ArchiveBroken, match=f"stream=orders, but no folder {CHECKPOINT}"):
        check_folder(archive)
    (archive / CHECKPOINT / "offsets").mkdir(parents=True)
    with pytest.raises(ArchiveBroken, match="stream=orders"):
        check_folder(archive)
    (archive / CHECKPOINT / "offsets" / "0").touch()
    check_folder(archive)


def test_a_file_is_no_archive(archive: Path) -> None:
    archive.touch()
    with pytest.raises(ArchiveBroken, match="is not a folder"):
        check_folder(archive)


def test_an_option_that_the_archive_sets_itself_is_refused() -> None:
    with pytest.raises(InvalidOption, match="an archive sets the option StartingOffsets itself"):
        ArchivePlan(
            servers="a:1", streams=("s",), folder=Path("a"), options={"StartingOffsets": "latest"}
        )


def test_dates_are_those_of_utc_whatever_the_time_zone_of_the_session(
    spark: SparkSession, archive: Path
) -> None:
    midnight = 1_767_225_600 * 10**9  # 2026-01-01T00:00:00Z
    times = [midnight - 1, midnight, midnight + 86_400 * 10**9 - 1]
    rows = [("s", nanos, nanos // 1000, 0, number) for number, nanos in enumerate(times)]
    frame = spark.createDataFrame(
        rows, "topic string, timestampNanos bigint, micros bigint, partition int, offset bigint"
    ).selectExpr("*", "timestamp_micros(micros) as timestamp")
    for zone in ("Pacific/Auckland", "America/Los_Angeles"):
        spark.conf.set("spark.sql.session.timeZone", zone)
        try:
            write_batch(frame, 0, str(archive))
        finally:
            spark.conf.set("spark.sql.session.timeZone", "UTC")
        dates = Counter(file.parts[-3] for file in archive.glob("stream=s/*/batch=0/*.parquet"))
        assert set(dates) == {"date=2025-12-31", "date=2026-01-01"}
        assert offsets(archive) == each_once("s", 3)
