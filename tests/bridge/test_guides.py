"""The pages about bridges and moving: their steps run, and their tables say what is."""

from __future__ import annotations

import asyncio
import inspect
import os
import re
import shlex
import signal
import textwrap
from pathlib import Path
from typing import Any, Final

import pytest

from liftbridge_aio import Client, bridge, nsq, stan
from liftbridge_aio.bridge import errors
from liftbridge_aio.bridge.core.addresses import EXAMPLES, System
from liftbridge_aio.handlers import Delivery
from liftbridge_aio.queue import Delivery as QueueDelivery
from support.bridges import Ends, Forks, eventually
from support.markdown import ROOT, blocks, names, table
from support.streaming_clients import publish_many

DOCS: Final = ROOT / "docs"
PAGE: Final = DOCS / "bridges.md"
FROM_STREAMING: Final = DOCS / "moving-from-nats-streaming.md"
FROM_NSQ: Final = DOCS / "moving-from-nsq.md"


def for_test(text: str, ends: Ends) -> str:
    """Return code or a command with the addresses and the name of the test."""
    for shown, real in (
        ("127.0.0.1:4222", ends.streaming.url.removeprefix("nats://")),
        ("127.0.0.1:4150", ends.nsqd.address),
        ("127.0.0.1:9292", ends.node.address),
    ):
        text = text.replace(shown, real)
    return re.sub(r"\borders(?=[\"/ \n])", ends.name, text)


@pytest.mark.parametrize("page", [FROM_STREAMING, FROM_NSQ], ids=lambda page: page.stem)
async def test_the_steps_of_moving_lose_no_message(
    page: Path, ends: Ends, capsys: pytest.CaptureFixture[str]
) -> None:
    steps: dict[str, Any] = {}
    for block in blocks(page, "python"):
        exec(for_test(block.code, ends), steps)  # noqa: S102
    begin, finish = (
        shlex.split(for_test(block.code, ends))[2:] for block in blocks(page, "console")
    )
    published: list[str] = []
    charged: list[str] = []
    publish = ends.to_channel if page is FROM_STREAMING else ends.to_topic
    enough = asyncio.Event()

    async def publish_on() -> None:
        while not enough.is_set():
            await publish(b"%d" % len(published))
            published.append(str(len(published)))
            await asyncio.sleep(0.01)

    async def some_more() -> None:
        """Wait until messages are handled that are published after this call."""
        count = len(published)

        def handled() -> bool:
            charged.extend(re.findall(r"^charged (\d+)$", capsys.readouterr().out, re.MULTILINE))
            return any(int(each) >= count for each in charged)

        await eventually(handled)

    short = ["--message-timeout", "1s", "--interval", "60s"]
    async with Forks() as forks, asyncio.TaskGroup() as group:
        old_worker = group.create_task(steps["old_worker"]())
        publishing = group.create_task(publish_on())
        await some_more()
        if page is FROM_STREAMING:
            await steps["create"]()
        child = await forks.start(*begin, *short)
        while ends.name not in (await ends.lift.fetch_metadata()).streams:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        new_worker = group.create_task(steps["new_worker"]())
        await some_more()
        old_worker.cancel()
        await some_more()
        publish = steps["publish"]
        await some_more()
        os.kill(child, signal.SIGINT)
        assert await forks.ended() == 0
        await forks.start(*finish, *short)
        assert await forks.ended() == 0
        enough.set()
        await publishing

        def is_all_handled() -> bool:
            charged.extend(re.findall(r"^charged (\d+)$", capsys.readouterr().out, re.MULTILINE))
            return set(charged) == set(published)

        await eventually(is_all_handled)
        new_worker.cancel()


async def test_the_code_of_the_page_runs(ends: Ends, capsys: pytest.CaptureFixture[str]) -> None:
    await publish_many(ends.stan, ends.name, 3)
    [block] = blocks(PAGE, "python")
    code = textwrap.indent(for_test(block.code, ends), "    ")
    steps: dict[str, Any] = {}
    exec(f"async def example():\n{code}", steps)  # noqa: S102
    await steps["example"]()
    assert capsys.readouterr().out == "3 copied\n"
    assert await ends.in_stream() == [b"0", b"1", b"2"]


# Tables


def test_every_scheme_and_every_header_is_told() -> None:
    assert [names(row[0])[0] for row in table(PAGE, "Scheme")] == [each.value for each in System]
    assert [names(row[1])[0] for row in table(PAGE, "Scheme")] == list(EXAMPLES.values())
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
