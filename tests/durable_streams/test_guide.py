"""The page about Durable Streams says what is true: its code runs, its tables are complete."""

from __future__ import annotations

import inspect
import textwrap
from dataclasses import fields
from typing import Any, Final

import pytest

from liftbridge_aio import durable_streams
from liftbridge_aio.durable_streams import StreamOptions, errors
from support.markdown import ROOT, blocks, names, table

PAGE: Final = ROOT / "docs" / "durable-streams.md"
PACKAGE: Final = ROOT / "liftbridge_aio" / "durable_streams"


async def test_its_code_runs_from_top_to_bottom(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for block in blocks(PAGE, "python"):
        assert "http://127.0.0.1:4437/v1/stream/orders" in block.code
        code = block.code.replace("http://127.0.0.1:4437/v1/stream/orders", url)
        namespace: dict[str, Any] = {}
        exec("async def example():\n" + textwrap.indent(code, "    "), namespace)  # noqa: S102
        await namespace["example"]()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "{'n': 1} -1"
    assert "handled {'n': 4}" in lines
    assert lines[-2:] == ["False", "application/json"]


def test_the_table_of_calls_is_complete() -> None:
    shown = {}
    for row in table(PAGE, "Call"):
        name, _, arguments = names(row[0])[0].partition("(")
        shown[name] = [each.strip(" =)") for each in arguments.split(",") if each.strip(" =)")]
    public = {
        name: [each for each in inspect.signature(value).parameters if each != "self"]
        for name, value in vars(durable_streams.DurableStream).items()
        if inspect.isfunction(value) and not name.startswith("_")
    }
    untold = {"require_content_type"}
    assert shown.keys() == public.keys() - untold
    lifetime = {"fork": ["ttl", "expires_at"]}  # as for create
    for name, told in shown.items():
        assert sorted(told + lifetime.get(name, [])) == sorted(public[name]), name


def test_the_table_of_options_names_every_field_and_its_default() -> None:
    shown = {names(row[0])[0]: names(row[1])[0] for row in table(PAGE, "Field of `StreamOptions`")}
    real = StreamOptions()
    assert shown == {each.name: repr(getattr(real, each.name)) for each in fields(StreamOptions)}


def test_the_table_of_errors_is_complete() -> None:
    shown = [names(row[0])[0] for row in table(PAGE, "Error")]
    defined = {
        name
        for name, kind in vars(errors).items()
        if inspect.isclass(kind) and kind.__module__ == errors.__name__
    }
    assert set(shown) == defined - {"DurableStreamError"}
    assert set(shown) <= set(durable_streams.__all__)
    assert len(shown) == len(set(shown))


def test_every_rule_of_the_guide_stands_where_the_table_says() -> None:
    for *_, cell in table(PAGE, "Section"):
        found = names(cell)
        assert found
        for name in found:
            if name.endswith(".py"):
                assert (PACKAGE / name).exists() or (ROOT / name).exists(), name
                continue
            call, _, argument = name.partition("(")
            owner, _, attribute = call.partition(".")
            value = getattr(durable_streams, owner)
            if attribute:
                value = getattr(value, attribute)
            if argument:
                assert argument.rstrip("=)") in inspect.signature(value).parameters, name


def test_every_public_name_is_told() -> None:
    text = PAGE.read_text()
    untold = {"Appended", "Batch", "PendingAppend", "Reader", "StreamInfo"}  # what calls return
    assert [n for n in durable_streams.__all__ if n not in text and n not in untold] == []
