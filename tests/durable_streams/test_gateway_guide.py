"""The guide to the gateway says what is true: its code runs, its tables are complete."""

from __future__ import annotations

import textwrap
from dataclasses import fields
from typing import Any, Final

import pytest
from starlette.applications import Starlette

from durable_streams.conftest import RunGateway
from liftbridge_aio.durable_streams.gateway import GatewayOptions
from support.markdown import ROOT, blocks, names, table
from support.servers.node import EmbeddedServer

PAGE: Final = ROOT / "docs" / "gateway.md"


async def test_its_code_runs(
    run_gateway: RunGateway, embedded_server: EmbeddedServer, capsys: pytest.CaptureFixture[str]
) -> None:
    gateway = await run_gateway(embedded_server.address)
    for block in blocks(PAGE, "python"):
        code = block.code.replace("http://127.0.0.1:8000", gateway.url)
        namespace: dict[str, Any] = {}
        if block.setup == "gateway-app":
            exec(code, namespace)  # noqa: S102
            assert isinstance(namespace["app"], Starlette)
            continue
        exec("async def example():\n" + textwrap.indent(code, "    "), namespace)  # noqa: S102
        await namespace["example"]()
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition("}")[0] for line in lines] == [f"{{'n': {n}" for n in range(10)]


def test_the_table_of_options_names_every_field_and_its_default() -> None:
    shown = {names(row[0])[0]: names(row[1])[0] for row in table(PAGE, "Field of `GatewayOptions`")}
    real = GatewayOptions()
    defaults = {each.name: repr(getattr(real, each.name)) for each in fields(GatewayOptions)}
    assert shown == defaults | {"stream": "StreamOptions(…)"}
