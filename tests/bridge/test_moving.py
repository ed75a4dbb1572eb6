"""The steps of the pages about moving run one after the other, and every message is handled."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import signal
from pathlib import Path
from typing import Any, Final

import pytest

from support.bridges import Ends, Forks, eventually
from support.markdown import ROOT, blocks

FROM_STREAMING: Final = ROOT / "docs" / "moving-from-nats-streaming.md"
FROM_NSQ: Final = ROOT / "docs" / "moving-from-nsq.md"

pytestmark = pytest.mark.timeout(300)


@pytest.mark.parametrize("page", [FROM_STREAMING, FROM_NSQ], ids=lambda page: page.stem)
async def test_the_steps_of_moving_lose_no_message(
    page: Path, ends: Ends, capsys: pytest.CaptureFixture[str]
) -> None:
    steps: dict[str, Any] = {}
    for block in blocks(page, "python"):
        exec(ends.in_code(block.code), steps)  # noqa: S102
    begin, finish = (shlex.split(ends.in_code(block.code))[2:] for block in blocks(page, "console"))
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
        """Wait until messages are handled whose publishing begins after this call."""
        count = len(published) + 1

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
        await asyncio.wait([old_worker])
        await some_more()  # so the bridge copies
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
