"""The published client: `python -m benchmarks.peers.durable_streams_official consume|publish …`."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from durable_streams.adurable_stream import AsyncDurableStream

from benchmarks.peers.durable_streams_items import JSON, START, item, read_again_and_again, url
from benchmarks.peers.measuring import WARM_UP, Outcome, Settings, Watch, main


async def publish(settings: Settings) -> Outcome:
    """Append by as many tasks as the window has room for; it makes batches of what waits."""
    async with await AsyncDurableStream.create(url(settings), content_type=JSON) as stream:
        await _publish(stream, settings, WARM_UP)
        watch = Watch()
        took = await _publish(stream, settings, settings.messages)
        outcome = watch.stop(settings.messages)
        if settings.window == 1:
            outcome.latencies["latency"] = took
        return outcome


async def _publish(stream: Any, settings: Settings, messages: int) -> list[int]:
    value, left = item(settings), messages
    took = []

    async def work() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            began = time.monotonic_ns()
            await stream.append(value)
            took.append(time.monotonic_ns() - began)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(min(settings.window, messages)):
            tasks.create_task(work())
    return took


async def consume(settings: Settings) -> Outcome:
    """Read what the stream holds."""
    async with AsyncDurableStream(url(settings)) as stream:

        async def read() -> int:
            async with stream.stream(offset=START, live=False) as response:
                return len(await response.read_json())

        return await read_again_and_again(settings, read)


if __name__ == "__main__":
    main(
        "durable-streams",
        "durable-streams",
        {
            "consume": lambda settings: asyncio.run(consume(settings)),
            "publish": lambda settings: asyncio.run(publish(settings)),
        },
    )
