"""A replay publishes an archive as it was: each message once, in order, wherever it was cut off."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import liftbridge_aio
from liftbridge_aio import Client, Message, Record
from liftbridge_aio.spark import read_archive
from liftbridge_aio.spark.errors import InvalidColumns, InvalidOption
from liftbridge_aio.spark.pipelines.archive import ArchivePlan, start_archive
from liftbridge_aio.spark.pipelines.compaction import CHECKPOINT, ArchiveBroken, compact
from liftbridge_aio.spark.pipelines.replay import (
    Replay,
    ReplayPlan,
    ReplayRefused,
    replay_lock,
    throttled,
)
from support.spark.log_client import LogClient

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from support.spark.broker_thread import BrokerThread

Content = tuple[bytes | None, bytes, dict[str, bytes]]
STOP = 100
TOMORROW = datetime.now(UTC).date() + timedelta(days=2)
ROWS = 40
"""Messages of a partition that the test publishes at a time."""


def records(first: int, partition: int) -> list[Record]:
    """Make messages with keys, headers and bytes that are no text."""
    return [
        Record(
            b"\xff\x00%d" % row,
            None if row % 3 == 0 else b"key-\x80%d" % (row % 7),
            {"trace": b"\xfe%d" % row, "kind": b""} if row % 2 else {},
            partition=partition,
        )
        for row in range(first, first + ROWS)
    ]


def content(messages: list[Message]) -> list[Content]:
    own = ("trace", "kind")
    return [
        (each.key, each.value, {name: each.headers[name] for name in own if name in each.headers})
        for each in messages
    ]


def by_partition(messages: list[Message]) -> dict[int, list[Content]]:
    return {
        number: content([each for each in messages if each.partition == number])
        for number in (0, 1)
    }


def archive(spark: SparkSession, log: LogClient, folder: Path, stream: str) -> None:
    limit = 2 * ROWS
    plan = ArchivePlan(servers=log.address, streams=(stream,), folder=folder, max_messages=limit)
    assert start_archive(spark, plan).awaitTermination(STOP)


def replay_all(spark: SparkSession, plan: ReplayPlan, parts: int | None = None) -> None:
    replay = Replay(spark, plan)
    for part in replay.parts[:parts]:
        replay.write(part)


def test_an_archive_is_published_again_as_it_was(
    spark: SparkSession, log: LogClient, tmp_path: Path, stream_name: str
) -> None:
    """Cut off once between its commit and the note of it, and compacted meanwhile."""
    folder = tmp_path / "archive"
    log.create(stream_name, partitions=2)
    exact, naive = log.create(f"{stream_name}-again", 2), log.create(f"{stream_name}-naive", 2)
    for first in (0, ROWS):
        for partition in (0, 1):
            log.publish(stream_name, records(first, partition))
    archive(spark, log, folder, stream_name)
    original = by_partition(log.read_all(stream_name))
    plans = [
        ReplayPlan(servers=log.address, table=folder, streams=(stream_name,), to=to, exactly_once=e)
        for to, e in ((exact, True), (naive, False))
    ]
    with pytest.raises(
        ReplayRefused, match=f"no messages of nothing: it has those of {stream_name}"
    ):
        Replay(spark, replace(plans[0], streams=("nothing",)))
    for plan in plans:
        replay_all(spark, plan, 1)
        state = plan.position / "replay.json"
        noted = state.read_text()
        replay_all(spark, plan, 1)
        state.write_text(noted)  # as if it had been killed before it noted the second part
    count = read_archive(spark, folder).count()
    assert compact(spark, folder, TOMORROW) == 1
    assert read_archive(spark, folder).count() == count == 4 * ROWS
    for plan in plans:
        replay_all(spark, plan)
        assert Replay(spark, plan).parts == []
    assert by_partition(log.committed(exact)) == original
    repeated = Counter(map(str, content(log.read_all(naive))))
    assert sum(repeated.values()) == 6 * ROWS  # a part is there twice
    log.publish(stream_name, [b"later"], partition=0)  # what is archived later is published later
    archive(spark, log, folder, stream_name)
    replay_all(spark, plans[0])
    assert len(log.committed(exact)) == 4 * ROWS + 1


def test_messages_of_transactions_keep_the_order_of_their_commits(
    spark: SparkSession, log: LogClient, tmp_path: Path, stream_name: str
) -> None:
    folder = tmp_path / "archive"
    log.create(stream_name)
    again = log.create(f"{stream_name}-again")

    async def publish(client: Client) -> None:
        async with (
            client.producer() as first,
            client.producer() as second,
            first.transaction() as slow,
        ):
            await slow.publish(stream_name, b"slow", partition=0)
            async with second.transaction() as quick:
                await quick.publish(stream_name, b"quick", partition=0)
            await client.publish(stream_name, b"plain", partition=0)

    log.run(publish)
    archive(spark, log, folder, stream_name)
    compact(spark, folder, TOMORROW)
    replay_all(spark, ReplayPlan(servers=log.address, table=folder, to=again))
    assert [each.value for each in log.committed(again)] == [b"quick", b"plain", b"slow"]


def test_an_archive_is_whole_at_each_moment_of_a_compaction(
    spark: SparkSession, log: LogClient, tmp_path: Path, stream_name: str
) -> None:
    folder = tmp_path / "archive"
    log.create(stream_name, partitions=2)
    log.publish(stream_name, [*records(0, 0), *records(ROWS, 0), *records(0, 1)])
    archive(spark, log, folder, stream_name)

    def rows() -> list[Any]:
        order = ("partition", "offset")
        return read_archive(spark, folder).select("*").orderBy(*order).collect()

    whole = rows()
    assert len(whole) == 3 * ROWS
    assert compact(spark, folder, TOMORROW) == 1
    manifest = folder / "_manifest.json"
    written = manifest.read_text()
    assert rows() == whole
    manifest.unlink()  # as before it was written: the compacted folder alone counts for nothing
    assert rows() == whole
    manifest.write_text(written)
    old = json.loads(written)
    for one in old["compacted"].values():
        one["at"] -= 7200  # as if two hours had passed
    manifest.write_text(json.dumps(old))
    log.publish(stream_name, records(0, 1))  # late: the date was compacted already
    archive(spark, log, folder, stream_name)
    assert len(rows()) == 4 * ROWS
    [date] = folder.glob("stream=*/date=*")
    kept = {int(path.name.removeprefix("batch=")) for path in date.glob("batch=*")}
    assert kept == {2}  # what was replaced two hours ago is deleted
    last = folder / CHECKPOINT / "commits" / "2"
    shutil.move(last, tmp_path / "commit")  # a batch that is not complete is not read
    assert rows() == whole
    shutil.move(tmp_path / "commit", last)
    assert compact(spark, folder, TOMORROW) == 1
    assert len(rows()) == 4 * ROWS


def test_another_table_is_published_and_checked(
    spark: SparkSession, log: LogClient, tmp_path: Path, stream_name: str
) -> None:
    log.create(stream_name, partitions=2)
    table = tmp_path / "table"
    rows = spark.range(30).selectExpr(
        "cast(id as string) as value", "id % 2 as partition", "id div 2 as offset"
    )
    rows.orderBy("value").write.json(str(table))
    rows.select("value").write.json(str(tmp_path / "values"))

    def plan(position: str, **more: Any) -> ReplayPlan:
        given = {"table": table, "to": stream_name, "format": "json", "max_messages": 4, **more}
        return ReplayPlan(servers=log.address, checkpoint=tmp_path / position, **given)

    with pytest.raises(InvalidColumns, match="lacks partition, offset; it has value"):
        Replay(spark, plan("1", table=tmp_path / "values"))
    with pytest.raises(InvalidColumns, match="no column stream or topic"):
        Replay(spark, plan("2", to=None))
    assert [part.rows for part in Replay(spark, plan("3")).parts] == [8, 8, 8, 6]
    replay_all(spark, plan("3"))
    committed = log.committed(stream_name)
    values = [[int(each.value) for each in committed if each.partition == n] for n in (0, 1)]
    assert values == [list(range(0, 30, 2)), list(range(1, 30, 2))]
    with pytest.raises(ReplayRefused, match="has to"):
        Replay(spark, plan("3", to="other"))
    rows.limit(1).write.mode("append").json(str(table))
    with pytest.raises(ReplayRefused, match="31 rows in the parts that are complete, and had 30"):
        Replay(spark, plan("3"))


def test_what_a_replay_cannot_do_is_said_before_spark_starts(tmp_path: Path) -> None:
    def plan(**more: Any) -> ReplayPlan:
        return ReplayPlan(**{"servers": "a:1", "table": tmp_path, "checkpoint": tmp_path, **more})

    with pytest.raises(ReplayRefused, match="does not exist"):
        plan(table=tmp_path / "nothing")
    with pytest.raises(ReplayRefused, match="is no archive"):
        plan(checkpoint=None)
    with pytest.raises(ReplayRefused, match="2 streams cannot keep their order in one, c"):
        plan(streams=("a", "b"), to="c")
    with pytest.raises(InvalidOption, match="sets the option writeId itself"):
        plan(options={"writeId": "mine"})
    with (
        replay_lock(plan()),
        pytest.raises(ReplayRefused, match="another command"),
        replay_lock(plan()),
    ):
        pass


def test_a_csv_file_with_a_header_is_published(
    spark: SparkSession, log: LogClient, spark_broker: str, stream_name: str, tmp_path: Path
) -> None:
    table = tmp_path / "orders.csv"
    table.write_text("offset;partition;value\n1;0;two\n0;0;one\n")
    columns = "offset bigint, partition int, value string"
    plan = ReplayPlan(
        servers=spark_broker,
        table=table,
        to=log.create(stream_name),
        format="csv",
        checkpoint=tmp_path / "position",
        read_options={"header": "true", "sep": ";"},
        schema=columns,
    )
    with pytest.raises(InvalidColumns, match="read it with the option header=true"):
        Replay(spark, replace(plan, read_options={}, schema=None))
    with pytest.raises(InvalidColumns, match=r"partition of .* is string, and no whole number"):
        Replay(spark, replace(plan, schema=None))
    replay = Replay(spark, plan)
    for part in replay.parts:
        replay.write(part)
    assert [each.value for each in log.committed(stream_name)] == [b"one", b"two"]
    (tmp_path / CHECKPOINT).mkdir()
    with pytest.raises(ReplayRefused, match="is an archive, which has its own"):
        replace(plan, table=tmp_path)


def test_an_archive_of_a_newer_version_is_not_read(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(ArchiveBroken, match="is not the folder of an archive"):
        read_archive(spark, tmp_path / "nothing")
    (tmp_path / "_manifest.json").write_text('{"version": 2}')
    with pytest.raises(ArchiveBroken, match="has version 2, not 1"):
        read_archive(spark, tmp_path)


def test_a_rate_limits_the_rows_of_a_task() -> None:
    import pyarrow as pa  # noqa: PLC0415 - not where Spark is missing

    rows = pa.record_batch({"value": pa.array([b"x"] * 100)})
    started = time.monotonic()
    passed = list(throttled(iter([rows]), rate=500))
    assert time.monotonic() - started >= 0.19
    assert [each.num_rows for each in passed] == [50, 50]


BY_HAND = pytest.mark.skipif(
    "LIFTBRIDGE_BY_HAND" not in os.environ,
    reason="starts Spark four times; run it by hand with LIFTBRIDGE_BY_HAND=1",
)


@BY_HAND
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_an_archive_and_its_replay_are_killed_once_each(
    own_broker: BrokerThread, tmp_path: Path
) -> None:
    folder = tmp_path / "archive"
    with LogClient(own_broker.address) as log:
        log.create("orders", partitions=2)
        log.create("again", partitions=2)
        for first in range(0, 5 * ROWS, ROWS):
            for partition in (0, 1):
                log.publish("orders", records(first, partition))
        limits = ("--max-messages", str(2 * ROWS))
        run_killed(
            own_broker.address,
            ("archive", "orders", "--to", str(folder), *limits),
            (folder / CHECKPOINT / "commits" / "1").exists,
        )
        state = folder / "_replays" / "orders to again" / "replay.json"
        run_killed(
            own_broker.address,
            ("replay", "orders", "--from", str(folder), "--to", "again", "--rate", "40"),
            lambda: state.exists() and json.loads(state.read_text())["done"] >= 0,
        )
        original = by_partition(log.read_all("orders"))
        assert by_partition(log.committed("again")) == original
        assert sum(map(len, original.values())) == 10 * ROWS


def run_killed(servers: str, words: tuple[str, ...], reached: Any) -> None:
    """Run a pipeline, kill it with its Java when it is halfway, and run it again to its end."""
    command = (sys.executable, "-m", "liftbridge_aio", "pipeline", *words, "--master", "local[2]")
    root = str(Path(liftbridge_aio.__file__).parent.parent)
    variables = {**os.environ, "PYTHONPATH": root}
    variables["LIFTBRIDGE_SERVERS"] = servers
    process = subprocess.Popen(command, env=variables, start_new_session=True)
    try:
        while not reached():
            assert process.poll() is None
            time.sleep(0.01)
        assert process.poll() is None
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(STOP)
    subprocess.run(command, env=variables, check=True, timeout=300)
