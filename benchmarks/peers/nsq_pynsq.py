"""pynsq, on tornado: `python -m benchmarks.peers.nsq_pynsq consume|publish …`."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import nsq

from benchmarks.peers.measuring import WARM_UP, Outcome, Settings, Watch, main
from benchmarks.peers.nsq_consumer import CHANNEL, MAX_IN_FLIGHT

logging.disable(logging.CRITICAL)


async def publish(settings: Settings) -> Outcome:
    """Publish as many as the window has room for at a time; each callback sends the next."""
    writer = nsq.Writer(list(settings.servers))
    await asyncio.sleep(0.5)  # until it has connected, which nothing tells
    await _publish(writer, settings, WARM_UP)
    watch = Watch()
    await _publish(writer, settings, settings.messages)
    return watch.stop(settings.messages)


async def _publish(writer: Any, settings: Settings, messages: int) -> None:
    left = unanswered = messages
    done = asyncio.Event()
    topic, value = settings.stream, settings.value

    def answered(_: Any, answer: Any) -> None:
        nonlocal left, unanswered
        if isinstance(answer, nsq.Error):
            raise answer
        unanswered -= 1
        if not unanswered:
            done.set()
        elif left:
            left -= 1
            writer.pub(topic, value, answered)

    for _ in range(min(settings.window, messages)):
        left -= 1
        writer.pub(topic, value, answered)
    await done.wait()


async def consume(settings: Settings) -> Outcome:
    """Consume and finish."""
    received = 0
    done = asyncio.Event()

    def handle(_: Any) -> bool:
        nonlocal received
        received += 1
        if received == settings.expected:
            done.set()
        return True

    watch = Watch()
    nsq.Reader(
        message_handler=handle,
        nsqd_tcp_addresses=list(settings.servers),
        topic=settings.stream,
        channel=CHANNEL,
        max_in_flight=MAX_IN_FLIGHT,
    )
    await done.wait()
    return watch.stop(settings.expected)


if __name__ == "__main__":
    main(
        "pynsq",
        "pynsq",
        {
            "consume": lambda settings: asyncio.run(consume(settings)),
            "publish": lambda settings: asyncio.run(publish(settings)),
        },
    )
