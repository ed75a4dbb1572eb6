"""The page about NSQ says what is true: its code runs, its tables are complete."""

from __future__ import annotations

import ast
import asyncio
import inspect
import os
import signal
import textwrap
from dataclasses import fields
from typing import Any, Final

import pytest

from liftbridge_aio import nsq
from liftbridge_aio.nsq import ConnectionOptions, ConsumerOptions, errors
from nsq_client.conftest import StartDaemon
from support.markdown import ROOT, blocks, names, table

PAGE: Final = ROOT / "docs" / "nsq.md"
FOLDERS: Final = [ROOT / "tests" / "nsq_client", ROOT / "tests" / "unit"]


async def test_its_code_runs_from_top_to_bottom(
    start: StartDaemon, capsys: pytest.CaptureFixture[str]
) -> None:
    lookupd = start("nsqlookupd")
    nsqd = start("nsqd", f"-lookupd-tcp-address={lookupd.address}")
    ports = {
        "127.0.0.1:4150": nsqd.address,
        "http://127.0.0.1:4151": nsqd.http_url,
        "http://127.0.0.1:4161": lookupd.http_url,
    }
    said = ""
    for block in blocks(PAGE, "python"):
        code = block.code
        for shown, real in ports.items():
            code = code.replace(shown, real)
        namespace: dict[str, Any] = {}
        exec("async def example():\n" + textwrap.indent(code, "    "), namespace)  # noqa: S102
        running = asyncio.create_task(namespace["example"]())
        if ".run(" in code:  # it ends as the page says, on SIGTERM
            async with nsq.Producer(nsqd.address) as producer:
                while "handled" not in said:
                    await producer.publish("orders", b"7 buns")
                    said += capsys.readouterr().out
            os.kill(os.getpid(), signal.SIGTERM)
        async with asyncio.timeout(20):
            await running
        said += capsys.readouterr().out
    assert "b'3 rolls' 1" in said
    assert "handled b'7 buns'" in said


@pytest.mark.parametrize("options", [ConnectionOptions, ConsumerOptions])
def test_the_tables_of_options_name_every_field_and_its_default(
    options: type[ConnectionOptions],
) -> None:
    shown = {}
    for field, default, _ in table(PAGE, f"Field of `{options.__name__}`"):
        shown[names(field)[0]] = ast.literal_eval(names(default)[0])
    inherited = (
        set() if options is ConnectionOptions else {f.name for f in fields(ConnectionOptions)}
    )
    real = options()
    assert shown == {
        field.name: getattr(real, field.name)
        for field in fields(options)
        if field.name not in inherited
    }


def test_the_table_of_errors_is_complete() -> None:
    shown = {names(row[0])[0] for row in table(PAGE, "Error")}
    defined = {
        name
        for name, kind in vars(errors).items()
        if inspect.isclass(kind) and kind.__module__ == errors.__name__
    }
    assert shown == defined - {"NsqError"}


def test_every_rule_of_the_guide_stands_where_the_table_says() -> None:
    known = {field.name for field in fields(ConsumerOptions)} | {"on_giving_up"}
    for *_, cell in table(PAGE, "Section"):
        found = names(cell)
        assert found
        for name in found:
            if name.endswith(".py"):
                assert (ROOT / "liftbridge_aio" / name).exists(), name
                continue
            call, _, argument = name.partition("(")
            owner, _, attribute = call.partition(".")
            if not attribute and not argument:
                assert name in known, name
                continue
            value = getattr(nsq, owner)
            if attribute:
                assert hasattr(value, attribute), name
            if argument:
                assert argument.rstrip("=)") in inspect.signature(value).parameters, name


def test_every_behaviour_has_its_test() -> None:
    defined = {
        node.name
        for folder in FOLDERS
        for file in folder.rglob("test_*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    } | {"TestWalk"}
    shown = [names(cell) for _, cell in table(PAGE, "Behaviour")]
    assert all(shown)
    assert [name for row in shown for name in row if name not in defined] == []


def test_every_public_name_is_told() -> None:
    text = PAGE.read_text()
    untold = {"NsqdStatistics", "ConsumerStatistics", "FoundNsqd"}
    assert [name for name in nsq.__all__ if name not in text and name not in untold] == []
