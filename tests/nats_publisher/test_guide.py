"""The guide to publishing over NATS: its code runs, its tables are complete."""

from __future__ import annotations

import textwrap
from typing import Any, Final

from liftbridge_aio import Client, errors
from liftbridge_aio import nats as room
from support.markdown import ROOT, Block, blocks, names, table
from support.servers.node import LiftbridgeNode

GUIDE: Final = ROOT / "docs" / "nats.md"
PYTHON: Final = blocks(GUIDE, "python")


async def run(block: Block, **given: object) -> None:
    above = "\n" * (block.line - 2) + "async def example(nats_url, servers):\n"
    code = compile(above + textwrap.indent(block.code, "    "), str(GUIDE), "exec")
    namespace: dict[str, Any] = {}
    exec(code, namespace)  # noqa: S102
    await namespace["example"](**given)


async def test_its_code_runs_from_top_to_bottom(real_server: LiftbridgeNode) -> None:
    async with Client(real_server.address) as client:
        try:
            for block in PYTHON:
                assert block.setup == "nats"
                await run(block, nats_url=real_server.nats_url, servers=real_server.address)
        finally:
            for name in ("orders", "sales"):
                await client.delete_stream(name)


def test_every_error_that_is_named_exists() -> None:
    told = [name for row in table(GUIDE, "Error") for name in names(row[0])]
    assert told
    assert [name for name in told if not hasattr(errors, name) and not hasattr(room, name)] == []


def test_every_public_name_is_told() -> None:
    text = GUIDE.read_text()
    untold = {"is_envelope"}
    assert [name for name in room.__all__ if name not in text and name not in untold] == []
