"""The pages about bridges and moving: their code runs, and their tables say what is."""

from __future__ import annotations

import inspect
import re
import textwrap
from typing import Any, Final

import pytest

from liftbridge_aio import Client, bridge, nsq, stan
from liftbridge_aio.bridge import errors
from liftbridge_aio.bridge.bridge import SYSTEMS
from liftbridge_aio.handlers import Delivery
from liftbridge_aio.queue import Delivery as QueueDelivery
from support.bridges import Ends
from support.markdown import ROOT, blocks, names, table
from support.streaming_clients import publish_many

DOCS: Final = ROOT / "docs"
PAGE: Final = DOCS / "bridges.md"
FROM_STREAMING: Final = DOCS / "moving-from-nats-streaming.md"
FROM_NSQ: Final = DOCS / "moving-from-nsq.md"


async def test_the_code_of_the_page_runs(ends: Ends, capsys: pytest.CaptureFixture[str]) -> None:
    await publish_many(ends.stan, ends.name, 3)
    [block] = blocks(PAGE, "python")
    code = textwrap.indent(ends.in_code(block.code), "    ")
    steps: dict[str, Any] = {}
    exec(f"async def example():\n{code}", steps)  # noqa: S102
    await steps["example"]()
    assert capsys.readouterr().out == "3 copied\n"
    assert await ends.in_stream() == [b"0", b"1", b"2"]


# Tables


def test_every_scheme_and_every_header_is_told() -> None:
    assert [names(row[0])[0] for row in table(PAGE, "Scheme")] == [each.scheme for each in SYSTEMS]
    assert [names(row[1])[0] for row in table(PAGE, "Scheme")] == [each.example for each in SYSTEMS]
    shown = {names(row[0])[0] for row in table(PAGE, "Header")}
    assert shown == {getattr(bridge, name) for name in bridge.__all__ if name.endswith("_HEADER")}


def test_every_error_is_told() -> None:
    shown = [names(row[0])[0] for row in table(PAGE, "Error")]
    assert shown == [
        name
        for name, kind in vars(errors).items()
        if inspect.isclass(kind) and kind.__module__ == errors.__name__
    ]


def test_the_table_of_deliveries_has_every_answer_and_system() -> None:
    rows = table(DOCS / "queues.md", "Delivery")
    shown = {re.sub(r"\(.*", "", name) for row in rows for name in names(row[0])[:1]}
    members = {name for name in vars(Delivery) if not name.startswith("_")}
    assert members <= shown
    for kind in (QueueDelivery, stan.Message, nsq.Message):
        assert [name for name in members if not hasattr(kind, name)] == []
    for row in rows:
        for system, cell in zip((None, stan, nsq), row[1:], strict=True):
            for name in names(cell):
                if name[0].isupper() and name.isalpha() and system is not None:
                    assert hasattr(system, name), name


def test_what_the_pages_about_moving_name_exists() -> None:
    parameters = inspect.signature(Client.queue).parameters
    for page, heading in ((FROM_STREAMING, "NATS Streaming"), (FROM_NSQ, "NSQ")):
        for row in table(page, heading):
            for call in names(row[1]):
                for argument in re.findall(r"(\w+)=", call):
                    if call.startswith("client.queue"):
                        assert argument in parameters, call
