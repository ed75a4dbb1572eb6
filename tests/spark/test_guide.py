"""The guide of the Spark package is correct: its code runs, its tables are complete."""

from __future__ import annotations

import asyncio
import inspect
import json
import runpy
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from liftbridge_aio import Client
from liftbridge_aio.spark import errors
from liftbridge_aio.spark.core import option_table
from support.markdown import ROOT, Block, blocks, names, table
from support.spark.broker_thread import BrokerThread
from support.spark.log_client import LogClient
from support.terminal import Terminal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GUIDE: Final = ROOT / "docs" / "spark.md"
PYTHON: Final = blocks(GUIDE, "python")
NOT_RUN: Final = {
    'liftbridge-aio pipeline archive --pattern "order.*" --to archive --follow --every 1m': (
        "runs until it is interrupted, as tests/cli does"
    ),
    "liftbridge-aio pipeline archive orders sales --to archive --option failOnDataLoss=false": (
        "differs by one option from what runs, and starts one more Spark"
    ),
    "liftbridge-aio pipeline replay --from table --format parquet --to orders-again"
    " --checkpoint position": "needs another table, as test_replay has, and one more Spark",
    "liftbridge-aio pipeline replay --from orders.csv --format csv --read-option header=true"
    ' --schema "value string, partition int, offset bigint" --to orders-again'
    " --checkpoint position": "needs another file, as test_replay has, and one more Spark",
}
"""Commands that are only parsed, by tests/docs, and why."""


def _compiled(block: Block, head: str = "") -> Any:
    code = f"{head}\n{textwrap.indent(block.code, '    ')}" if head else block.code
    above = "\n" * (block.line - (2 if head else 1))  # so that errors name the line of the page
    return compile(above + code, str(GUIDE), "exec", dont_inherit=True)


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


def test_the_page_runs_from_top_to_bottom(
    spark: SparkSession,
    checkpoint: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    terminal = Terminal(monkeypatch)
    session: dict[str, Any] = {
        "spark": spark,
        "checkpoint": checkpoint,
        "archive": str(tmp_path / "archive"),
    }
    try:
        for block in sorted([*PYTHON, *blocks(GUIDE, "console")], key=lambda block: block.line):
            if block.language == "console":
                for line in block.code.splitlines():
                    if line not in NOT_RUN:
                        terminal.run(line)
                session["servers"] = terminal.address
            elif block.setup == "client":
                asyncio.run(_with_client(block, terminal.address))
            else:
                exec(_compiled(block), session)  # noqa: S102
        with LogClient(terminal.address) as log:
            totals = [(each.key, json.loads(each.value)["cents"]) for each in log.read("totals")]
            assert sorted(totals) == [(b"ann", 300), (b"bob", 100)]
            for stream in ("orders", "orders-again"):
                values = sorted(message.value for message in log.committed(stream))
                assert values == [b"1 bread", b"2 rolls", b"3 eggs"]
        assert session["orders"].count() == session["in_order"].count() == 3
        assert session["largest"] is not None
        assert "0 repeats" in capsys.readouterr().out
    finally:
        terminal.close()


async def _with_client(block: Block, address: str) -> None:
    namespace: dict[str, Any] = {}
    exec(_compiled(block, "async def example(client):"), namespace)  # noqa: S102
    async with Client(address) as client:
        await namespace["example"](client)


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
