"""The guide of the Spark package is correct: its code runs, its tables are complete."""

from __future__ import annotations

import inspect
import json
import runpy
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from liftbridge_aio import Client, Record
from liftbridge_aio.spark import errors
from liftbridge_aio.spark.core import option_table
from liftbridge_aio.spark.pipelines.archive import ArchivePlan, start_archive
from support.markdown import ROOT, Block, blocks, names, table
from support.spark.broker_thread import BrokerThread
from support.spark.log_client import LogClient

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GUIDE: Final = ROOT / "docs" / "spark.md"
PYTHON: Final = blocks(GUIDE, "python")


def the_code(word: str) -> Any:
    """Compile the one block that contains a word."""
    (block,) = [block for block in PYTHON if word in block.code]
    return _compiled(block)


def _compiled(block: Block, head: str = "") -> Any:
    code = f"{head}\n{textwrap.indent(block.code, '    ')}" if head else block.code
    above = "\n" * (block.line - (2 if head else 1))  # so that errors name the line of the page
    return compile(above + code, str(GUIDE), "exec", dont_inherit=True)


def test_every_block_is_run_below() -> None:
    assert [block.setup for block in PYTHON] == ["spark", "spark", "spark", "client", "spark"]


def test_the_example_adds_up_again_and_again(
    spark: SparkSession,
    own_broker: BrokerThread,
    checkpoint: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert spark.version  # the session that the example finds
    monkeypatch.setenv("LIFTBRIDGE_SERVERS", own_broker.address)
    monkeypatch.setenv("CHECKPOINT", checkpoint)
    for ann, bob in [(300, 100), (600, 200)]:
        runpy.run_path(str(ROOT / "docs" / "examples" / "totals_spark.py"))
        assert set(capsys.readouterr().out.splitlines()[-2:]) == {f"ann {ann}", f"bob {bob}"}


def test_the_pipeline_adds_up(
    spark: SparkSession, own_broker: BrokerThread, checkpoint: str
) -> None:
    sales = [("ann", 1, 250), ("bob", 2, 100), ("ann", 59, 50), ("eve", 90, 1)]
    with LogClient(own_broker.address) as log:
        log.create("sales", partitions=2)
        log.create("totals")
        for shop, second, cents in sales:
            at = f"2026-01-01T00:{second // 60:02}:{second % 60:02}Z"
            sale = json.dumps({"at": at, "shop": shop, "cents": cents})
            log.publish("sales", [Record(sale.encode(), shop.encode())])
        code = the_code("totals.writeStream")
        exec(code, {"spark": spark, "servers": own_broker.address, "checkpoint": checkpoint})  # noqa: S102
        totals = [(each.key, json.loads(each.value)["cents"]) for each in log.read("totals")]
    assert sorted(totals) == [(b"ann", 300), (b"bob", 100)]


def test_batches_are_written_and_read(spark: SparkSession, own_broker: BrokerThread) -> None:
    namespace: dict[str, Any] = {"spark": spark, "servers": own_broker.address}
    with LogClient(own_broker.address) as log:
        log.create("orders", partitions=3)
        exec(the_code("frame.write"), namespace)  # noqa: S102
        assert sorted(message.value for message in log.read_all("orders")) == [
            b"1 bread",
            b"2 rolls",
            b"3 eggs",
        ]
        namespace["F"] = pytest.importorskip("pyspark.sql.functions")
        exec(the_code("orders.orderBy"), namespace)  # noqa: S102
        assert namespace["orders"].count() == 3
        assert namespace["largest"] is not None


def test_an_archive_is_published_again_in_its_order(
    spark: SparkSession, own_broker: BrokerThread, tmp_path: Path
) -> None:
    streams, folder = ("orders", "sales"), tmp_path / "archive"
    plan = ArchivePlan(servers=own_broker.address, streams=streams, folder=folder, max_messages=25)
    with LogClient(own_broker.address) as log:
        for stream in plan.streams:
            log.create(stream, partitions=2)
        log.create("orders-again", partitions=2)
        for first in (0, 50):
            for partition in (0, 1):
                rows = range(first, first + 50)
                records = [
                    Record(b"%d" % row, b"%d" % (row % 7), {"trace": b"%d" % row}, partition)
                    for row in rows
                ]
                log.publish("orders", records)
            log.publish("sales", [b"sale"])
            assert start_archive(spark, plan).awaitTermination(60)
        words = {"spark": spark, "servers": own_broker.address, "archive": str(folder)}
        exec(the_code("spark.read.parquet"), words)  # noqa: S102
        for partition in (0, 1):
            assert [
                (message.key, message.value, message.headers["trace"])
                for message in log.read("orders-again", partition)
            ] == [(b"%d" % (row % 7), b"%d" % row, b"%d" % row) for row in range(100)]


async def test_repeats_can_be_counted(capsys: pytest.CaptureFixture[str]) -> None:
    with BrokerThread() as broker:
        (block,) = [block for block in PYTHON if block.setup == "client"]
        namespace: dict[str, Any] = {}
        exec(_compiled(block, "async def example(client):"), namespace)  # noqa: S102
        async with Client(broker.address) as client:
            await client.create_stream("totals")
            await namespace["example"](client)
    assert "0 repeats" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("heading", "known"),
    [("## Reading", option_table.READ_NAMES), ("## Writing", option_table.WRITE_NAMES)],
)
def test_every_option_is_in_its_table(heading: str, known: tuple[str, ...]) -> None:
    text = GUIDE.read_text().partition(f"\n{heading}\n")[2].partition("\n## ")[0]
    lines = text.partition("| Option |")[2].splitlines()
    rows = [line for line in lines if line.startswith("| `")]
    told = {name for row in rows for name in names(row.split("|")[1])}
    assert set(known) - told <= {"path", "liftbridge.bootstrap.servers"}  # other words for some
    assert told - set(known) == {"liftbridge.…"}


def test_every_code_is_in_its_table() -> None:
    codes = {
        value.code
        for value in vars(errors).values()
        if inspect.isclass(value)
        and issubclass(value, errors.SparkSourceError)
        and value is not errors.SparkSourceError
    }
    assert {name for row in table(GUIDE, "Code") for name in names(row[0])} == codes
