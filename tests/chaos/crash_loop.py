"""A lone server that is killed again and again, and a client that reads and publishes meanwhile.

v1.9.0 opens its port about two seconds before it knows its streams again, so in a crash loop it
denies them most of the time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Final

from liftbridge_aio import Client, ClientOptions, Message, Retry, StartAt
from support.servers.node import LiftbridgeNode

LIVES: Final = 4
BEFORE: Final = 20
"""Messages that are read before the first crash."""
WITHIN: Final = 30.0
"""Seconds for a publish, and for whatever else is waited for."""


class WentWrong(Exception):
    """A promise of the client was broken; the text says which."""


async def crash_loop(
    node: LiftbridgeNode, options: ClientOptions, stream: str, life: float
) -> float:
    """Kill a running server again and again, and check what a client makes of it.

    Args:
        node: it runs again when this returns.
        options: of the client.
        stream: a new one, deleted in the end.
        life: seconds from the moment at which its port opens to the next crash.

    Returns:
        Seconds from the moment at which it knew its streams to the first message that was published
        and read after that.

    Raises:
        WentWrong: a message was lost, or came twice, or the reading ended.
        ServerDidNotStart: the server did not come back.
        LiftbridgeError: what publishing or reading raised.
    """
    acked: list[bytes] = []
    read: list[Message] = []

    async def publish() -> None:
        while True:
            value = b"%d" % len(acked)
            await client.publish(stream, value, retry=Retry(attempts=50), timeout=WITHIN)
            acked.append(value)

    async def tail() -> None:
        async for message in client.subscribe(stream, start=StartAt.earliest()):
            read.append(message)  # noqa: PERF401 - each is looked at as it comes

    async with Client(node.address, options=options) as client:
        await client.create_stream(stream)
        tasks = [asyncio.create_task(publish()), asyncio.create_task(tail())]
        try:
            await _until(lambda: len(read) >= BEFORE, tasks)
            for _ in range(LIVES):
                await asyncio.to_thread(node.kill)
                await asyncio.to_thread(node.launch)
                await asyncio.to_thread(node.wait_open)
                await asyncio.sleep(life)
            await asyncio.to_thread(node.wait_ready)
            ready, count = time.monotonic(), len(acked)
            await _until(lambda: len(acked) > count + 1, tasks)
            last = acked[count + 1]  # begun after it was ready
            await _until(lambda: any(each.value == last for each in read), tasks)
            took = time.monotonic() - ready
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        await client.delete_stream(stream)
    _check(acked[: acked.index(last)], read)
    return took


async def _until(condition: Callable[[], bool], tasks: Sequence[asyncio.Task[None]]) -> None:
    until = time.monotonic() + WITHIN
    while not condition():
        for task in tasks:
            if task.done():
                await task
                text = "the reading ended"
                raise WentWrong(text)
        if time.monotonic() > until:
            text = f"publishing and reading did not go on within {WITHIN:g} s"
            raise WentWrong(text)
        await asyncio.sleep(0.01)


def _check(acked: Sequence[bytes], read: Sequence[Message]) -> None:
    offsets = [each.offset for each in read]
    if offsets != list(range(len(offsets))):
        text = f"offsets are missing, repeated or out of order: {offsets}"
        raise WentWrong(text)
    if lost := set(acked) - {each.value for each in read}:
        text = f"acked and not read: {sorted(lost)}"
        raise WentWrong(text)
