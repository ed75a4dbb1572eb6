"""A pipeline that a file describes: what it writes, and what is wrong before it starts."""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from liftbridge_aio import Record
from liftbridge_aio.model import ACK_HEADER
from liftbridge_aio.spark.core.pipeline_file import PipelineFile, PipelineFileError, parse_pipeline
from liftbridge_aio.spark.pipelines.archive import ArchivePlan, start_archive
from liftbridge_aio.spark.pipelines.checkpoints import NOTE
from liftbridge_aio.spark.pipelines.file_pipeline import (
    analyse,
    start_pipeline,
    unknown_settings,
)
from liftbridge_aio.spark.pipelines.pipeline_folders import (
    PipelineRunning,
    check_folders,
    pipeline_lock,
)
from liftbridge_aio.spark.session.query_progress import ProgressCounter, QueryFailed
from support.spark.log_client import LogClient

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILE = '''\
checkpoint = "positions"

[sources.sales]
streams = ["SALES"]
value = "at timestamp, shop string, cents bigint"
watermark = { column = "at", delay = "10 seconds" }

[steps.totals]
sql = """
SELECT shop AS key, window.start AS start, shop, sum(cents) AS cents
FROM sales
GROUP BY shop, window(at, '1 minute')
"""

[steps.large]
python = "steps.py:large"

[sinks.totals]
from = "totals"
stream = "TOTALS"

[sinks.files]
from = "large"
parquet = "files"
partition_by = ["shop"]

[sinks.screen]
from = "large"
console = true
'''
PYTHON = """\
from pyspark.sql.functions import udf

@udf("boolean")
def is_large(cents):  # runs in workers, which cannot import this file
    return cents > 50

def large(views):
    sales = views["sales"]
    return sales.where(is_large("cents")).selectExpr("shop", "cents", "message.partition")

def nothing(views):
    return None
"""


def sale(shop: str, cents: int, time: str) -> Record:
    value = {"shop": shop, "cents": cents, "at": f"2026-03-02T{time}Z"}
    return Record(json.dumps(value).encode(), shop.encode())


def parsed(text: str, servers: str = "a:1") -> PipelineFile:
    return parse_pipeline(text, "p.toml", {}, servers)


def test_a_pipeline_writes_to_streams_files_and_the_console_once(
    spark: SparkSession, log: LogClient, stream_name: str, tmp_path: Path
) -> None:
    sales, totals = log.create(f"{stream_name}-sales", 2), log.create(f"{stream_name}-totals")
    (tmp_path / "steps.py").write_text(PYTHON)
    pipeline = parsed(FILE.replace("SALES", sales).replace("TOTALS", totals), log.address)
    shown: list[str] = []

    def run() -> None:
        queries = start_pipeline(spark, pipeline, tmp_path, shown.append)
        for query in queries.values():
            assert query.awaitTermination(100)
            assert query.exception() is None

    log.publish(sales, [sale("ann", 100, "09:00:01"), sale("bob", 5, "09:00:02")])
    run()
    log.publish(sales, [sale("ann", 60, "09:00:30"), sale("eve", 7, "09:09:00")])
    run()
    found = [(each.key, json.loads(each.value)["cents"]) for each in log.committed(totals)]
    assert sorted(found) == [(b"ann", 160), (b"bob", 5)]
    files = spark.read.parquet(str(tmp_path / "files")).select("shop", "cents")
    assert sorted(map(tuple, files.collect())) == [("ann", 60), ("ann", 100)]
    assert [json.loads(line)["cents"] for line in shown] == [100, 60]


BAD = """\
checkpoint = "positions"

[spark]
"spark.sql.shuffle.partitons" = 2
"spark.executorEnv.SHOP" = "ann"
"spark.sql.nonsense" = 1

[sources.sales]
streams = ["SALES"]
value = "at timestamp, shop string, cents bigint"
on_bad_record = "dead letter"
dead_letters = "BAD"
options = { positionsGroup = "GROUP" }

[steps.fields]
sql = "SELECT at, shop, cents FROM sales"

[sinks.checked]
from = "fields"
stream = "CHECKED"
"""
WHEN = "2026-03-02T09:00:00.123456Z"


def test_bad_records_are_counted_and_put_where_the_file_says(
    spark: SparkSession, log: LogClient, stream_name: str, tmp_path: Path
) -> None:
    """Good ones keep microseconds, and fields that are null."""
    from pyspark.errors import StreamingQueryException  # noqa: PLC0415 - optional

    names = {
        each.upper(): log.create(f"{stream_name}-{each}") for each in ("sales", "bad", "checked")
    }
    text = BAD
    for word, name in {**names, "GROUP": f"{stream_name}-group"}.items():
        text = text.replace(f'"{word}"', f'"{name}"')
    wrong = [b"", b"{", b"null", b"[1]", b'{"cents":"many"}', b'{"at":"noon"}', b"\xff"]
    good = {"at": WHEN, "shop": None, "cents": 5}
    log.publish(
        names["SALES"],
        [
            *(Record(each, b"k", headers={"trace": b"t"}) for each in wrong),
            Record(json.dumps({"at": WHEN, "cents": 5}).encode()),
        ],
    )

    def run(text: str) -> dict[str, ProgressCounter]:
        queries = start_pipeline(spark, parsed(text, log.address), tmp_path, print)
        counters = {name: ProgressCounter() for name in queries}
        for name, query in queries.items():
            with suppress(StreamingQueryException):
                assert query.awaitTermination(100)
            counters[name].update(query)
        return counters

    counters = run(text)
    assert counters["checked"].total.bad_records == len(wrong)
    assert [json.loads(each.value) for each in log.committed(names["CHECKED"])] == [good]
    letters = log.committed(names["BAD"])
    assert [each.value for each in letters] == wrong
    assert dict(letters[-1].headers) == {
        "trace": b"t",
        "dead-letter-stream": names["SALES"].encode(),
        "dead-letter-partition": b"0",
        "dead-letter-offset": b"6",
    }
    assert {each.key for each in letters} == {b"k"}

    lines = ("on_bad_record", "dead_letters")
    failing = "\n".join(line for line in text.splitlines() if not line.startswith(lines))
    with pytest.raises(QueryFailed) as caught:
        run(failing.replace('"positions"', '"others"'))
    assert str(caught.value) == (
        f"[LIFTBRIDGE_BAD_RECORD] the value of {names['SALES']}/0 at offset 0 is not JSON with the"
        " fields of the source sales; to go on without it, set on_bad_record to skip or dead letter"
    )
    unknown = "Spark knows no setting spark.sql"
    assert unknown_settings(spark, parsed(text)) == [
        f"p.toml, line 4: {unknown}.shuffle.partitons; did you mean spark.sql.shuffle.partitions?",
        f"p.toml, line 6: {unknown}.nonsense",
    ]


def test_malformed_acks_that_a_source_skips_are_counted(
    spark: SparkSession, log: LogClient, stream_name: str, tmp_path: Path
) -> None:
    """By a pipeline, for each of its sinks, and by an archive."""
    log.create(stream_name)
    garbage = Record(b"garbage", headers={ACK_HEADER: b"garbage"})
    log.publish(stream_name, [sale("ann", 1, "09:00:00"), garbage, garbage])
    text = FILES.replace("SALES", stream_name)
    options = {"onmalformed": "skip"}
    plan = ArchivePlan(
        servers=log.address, streams=(stream_name,), folder=tmp_path / "archive", options=options
    )
    queries = start_pipeline(
        spark,
        parsed(text.replace("value =", "options = { onMalformed = 'SKIP' }\nvalue ="), log.address),
        tmp_path,
        print,
    )
    queries["archive"] = start_archive(spark, plan)
    for query in queries.values():
        assert query.awaitTermination(100)
        counter = ProgressCounter()
        counter.update(query)
        assert (counter.total.rows_read, counter.total.bad_records) == (3, 2)
    for files in ("files", "archive"):
        assert spark.read.parquet(str(tmp_path / files)).count() == 1


FILES = """\
checkpoint = "positions"

[sources.sales]
streams = ["SALES"]
value = "shop string, cents bigint"

[sinks.files]
from = "sales"
parquet = "files"
"""


def test_files_of_another_checkpoint_are_refused_not_skipped(
    spark: SparkSession, log: LogClient, stream_name: str, tmp_path: Path
) -> None:
    pipeline = parsed(FILES.replace("SALES", log.create(stream_name)), log.address)
    positions, newest, older = (tmp_path / name for name in ("positions", "newest", "older"))

    def run(cents: int) -> None:
        log.publish(stream_name, [sale("ann", cents, "09:00:00")])
        query = start_pipeline(spark, pipeline, tmp_path, print)["files"]
        assert query.awaitTermination(100)

    def refused(problem: str) -> None:
        with pytest.raises(PipelineFileError, match=problem) as caught:
            run(0)
        assert str(caught.value).startswith("p.toml, line 9: ")
        assert "a new checkpoint and a new folder" in str(caught.value)

    run(1)
    shutil.copytree(positions, older)
    run(2)
    positions.rename(newest)
    refused("is new: Spark would skip its batches up to 1")
    shutil.copytree(older, positions)
    refused("is at batch 0: Spark would skip its batches up to 1")
    shutil.rmtree(positions)
    shutil.copytree(newest, positions)
    (tmp_path / "files").rename(tmp_path / "moved")
    refused("files is new: Spark would fail")
    (tmp_path / "moved").rename(tmp_path / "files")
    run(6)
    files = spark.read.parquet(str(tmp_path / "files")).select("cents")
    assert sorted(row[0] for row in files.collect()) == [0, 0, 0, 1, 2, 6]


TWO = f"""{FILES}
[sinks.others]
from = "sales"
parquet = "others"
"""


def test_files_of_another_query_at_the_same_batch_are_refused(
    spark: SparkSession, log: LogClient, stream_name: str, tmp_path: Path
) -> None:
    """Also folders of before there were notes, from their second run on."""
    log.create(stream_name)
    text = TWO.replace("SALES", stream_name)
    swapped = (
        text.replace('parquet = "files"', 'parquet = "?"')
        .replace('parquet = "others"', 'parquet = "files"')
        .replace('parquet = "?"', 'parquet = "others"')
    )

    def run(cents: int) -> None:
        log.publish(stream_name, [sale("ann", cents, "09:00:00")])
        for query in start_pipeline(spark, parsed(text, log.address), tmp_path, print).values():
            assert query.awaitTermination(100)

    run(1)
    for name in ("files", "others"):
        (tmp_path / name / NOTE).unlink()
    run(2)
    ids = {
        name: json.loads((tmp_path / "positions" / name / "metadata").read_text())["id"]
        for name in ("files", "others")
    }
    with pytest.raises(PipelineFileError, match="Spark would skip batches") as caught:
        check_folders(parsed(swapped, log.address), tmp_path)
    told = str(caught.value)
    assert told.startswith("p.toml, line 9: ")
    assert f"has rows of query {ids['others']}" in told
    assert f"is that of query {ids['files']}" in told
    assert "a new checkpoint and a new folder" in told
    run(3)
    files = spark.read.parquet(str(tmp_path / "files")).select("cents")
    assert sorted(row[0] for row in files.collect()) == [1, 2, 3]


def test_files_that_no_pipeline_wrote_are_not_hidden(tmp_path: Path) -> None:
    (tmp_path / "files" / "shop=ann").mkdir(parents=True)
    with pytest.raises(PipelineFileError, match="would no longer show them"):
        check_folders(parsed(FILES), tmp_path)


def test_a_pipeline_runs_once_at_a_time(tmp_path: Path) -> None:
    """Neither from its file, nor another one that writes to its folder."""
    other = FILES.replace("positions", "others")
    with pipeline_lock(parsed(FILES), tmp_path):
        for text in (FILES, other):
            with (
                pytest.raises(PipelineRunning, match=r"another command runs p\.toml"),
                pipeline_lock(parsed(text), tmp_path),
            ):
                pass
    with pipeline_lock(parsed(other), tmp_path):
        pass


@pytest.mark.parametrize(
    ("before", "after", "line", "problem"),
    [
        ("sum(cents)", "sum(cent)", 10, "UNRESOLVED_COLUMN"),
        ("FROM sales", "FROM sale", 11, "TABLE_OR_VIEW_NOT_FOUND"),
        ("GROUP BY", "GROUP BYE", 12, "PARSE_SYNTAX_ERROR"),
        ("cents bigint", "cents big", 5, "UNSUPPORTED_DATATYPE"),
        ('column = "at"', 'column = "when"', 6, "when"),
        ("watermark = {", "# watermark = {", 18, "watermark"),
        ("steps.py:large", "missing.py:large", 16, "FileNotFoundError"),
        ("steps.py:large", "steps.py:small", 16, "AttributeError"),
        ("steps.py:large", "steps.py:nothing", 16, "returned NoneType, not a DataFrame"),
        ('["shop"]', '["shops"]', 25, "large has no column shops"),
        ("shop AS key", "cast(1 AS int) AS key", 19, "LIFTBRIDGE_INVALID_COLUMNS"),
    ],
)
def test_what_is_wrong_is_found_at_its_line_before_anything_starts(
    spark: SparkSession, tmp_path: Path, before: str, after: str, line: int, problem: str
) -> None:
    (tmp_path / "steps.py").write_text(PYTHON)
    with pytest.raises(PipelineFileError, match=problem) as caught:
        analyse(spark, parsed(FILE.replace(before, after, 1)), tmp_path)
    assert str(caught.value).startswith(f"p.toml, line {line}: ")
