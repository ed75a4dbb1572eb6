"""ansq: `python -m benchmarks.peers.nsq_ansq consume|publish …`."""

from __future__ import annotations

import asyncio
from typing import Any

import ansq

from benchmarks.peers.measuring import WARM_UP, CallEnded, Outcome, Settings, Watch, main
from benchmarks.peers.nsq_consumer import CHANNEL


async def publish(settings: Settings) -> Outcome:
    """Publish by as many tasks as the window has room for."""
    writer = await ansq.create_writer(nsqd_tcp_addresses=list(settings.servers))
    await _publish(writer, settings, WARM_UP)
    watch = Watch()
    await _publish(writer, settings, settings.messages)
    return watch.stop(settings.messages)


async def _publish(writer: Any, settings: Settings, messages: int) -> None:
    left = messages

    async def work() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            await writer.pub(settings.stream, settings.value)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(min(settings.window, messages)):
            tasks.create_task(work())


async def consume(settings: Settings) -> Outcome:
    """Consume and finish; its RDY is 1 for each connection, and cannot be changed."""
    received = 0
    watch = Watch()
    reader = await ansq.create_reader(
        topic=settings.stream, channel=CHANNEL, nsqd_tcp_addresses=list(settings.servers)
    )
    async for message in reader.messages():
        await message.fin()
        received += 1
        if received == settings.expected:
            return watch.stop(settings.expected)
    raise CallEnded


if __name__ == "__main__":
    main(
        "ansq",
        "ansq",
        {
            "consume": lambda settings: asyncio.run(consume(settings)),
            "publish": lambda settings: asyncio.run(publish(settings)),
        },
    )
