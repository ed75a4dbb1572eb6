"""No client of Durable Streams at all, only the requests that one has to send."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from benchmarks.peers.durable_streams_items import (
    IN_FLIGHT,
    START,
    batch_items,
    item,
    read_again_and_again,
    url,
)
from benchmarks.peers.measuring import WARM_UP, Outcome, Settings, Watch
from benchmarks.peers.measuring import main as measuring_main


class Http(Protocol):
    """An HTTP client; every method raises if the status is no success."""

    async def create(self, url: str) -> None:
        """Send a PUT for a stream of JSON."""

    async def append(self, url: str, body: bytes) -> None:
        """Send a POST of JSON."""

    async def read(self, url: str) -> tuple[bytes, Mapping[str, str]]:
        """Send a GET; the body and the headers."""


Opened = Callable[[], AbstractAsyncContextManager[Http]]


async def publish(opened: Opened, settings: Settings) -> Outcome:
    """Append one at a time, or batches as ours makes them."""
    async with opened() as http:
        await http.create(url(settings))
        await _publish(http, settings, WARM_UP)
        watch = Watch()
        took = await _publish(http, settings, settings.messages)
        outcome = watch.stop(settings.messages)
        if settings.window == 1:
            outcome.latencies["latency"] = took
        return outcome


async def _publish(http: Http, settings: Settings, messages: int) -> list[int]:
    """Send all messages; the nanoseconds of each request."""
    value, left, target = item(settings), messages, url(settings)
    most = batch_items(settings)
    took = []

    async def work() -> None:
        nonlocal left
        while left > 0:
            count = min(left, most)
            left -= count
            began = time.monotonic_ns()
            body = json.dumps([value] * count, separators=(",", ":")).encode()
            await http.append(target, body)
            took.append(time.monotonic_ns() - began)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(min(settings.window, IN_FLIGHT)):
            tasks.create_task(work())
    return took


async def consume(opened: Opened, settings: Settings) -> Outcome:
    """Read what the stream holds."""
    async with opened() as http:

        async def read() -> int:
            received, offset, up_to_date = 0, START, False
            while not up_to_date:
                body, headers = await http.read(f"{url(settings)}?offset={offset}")
                received += len(json.loads(body))
                offset = headers["Stream-Next-Offset"]
                up_to_date = headers.get("Stream-Up-To-Date") == "true"
            return received

        return await read_again_and_again(settings, read)


def main(client: str, opened: Opened) -> None:
    """Run the command that the arguments name; the client is called as its distribution."""
    measuring_main(
        client,
        client,
        {
            "consume": lambda settings: asyncio.run(consume(opened, settings)),
            "publish": lambda settings: asyncio.run(publish(opened, settings)),
        },
    )
