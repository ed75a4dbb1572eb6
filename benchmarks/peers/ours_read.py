"""Our client reading as fast as it can."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

from benchmarks.peers.measuring import CallEnded, Outcome, Settings, Watch
from liftbridge_aio import Client, StartAt, Subscription


class _Countdown:
    """Messages that are still to come, from all partitions together."""

    def __init__(self, expected: int) -> None:
        self.left = expected
        self.out_of_order = 0


_Reader = Callable[[Subscription, _Countdown], Coroutine[None, None, None]]


async def consume(client: Client, settings: Settings) -> Outcome:
    """Read all partitions message by message until as many have come as expected."""
    return await _consume(client, settings, _by_message)


async def consume_batches(client: Client, settings: Settings) -> Outcome:
    """The same by lists of messages."""
    return await _consume(client, settings, _by_batch)


async def _consume(client: Client, settings: Settings, read: _Reader) -> Outcome:
    countdown = _Countdown(settings.expected)

    async def partition(number: int) -> None:
        async with client.subscribe(
            settings.stream, partition=number, start=StartAt.earliest()
        ) as messages:
            await read(messages, countdown)

    watch = Watch()
    readers = [asyncio.create_task(partition(number)) for number in range(settings.partitions)]
    await asyncio.wait(readers, return_when=asyncio.FIRST_COMPLETED)
    outcome = watch.stop(settings.expected)
    outcome.errors = countdown.out_of_order
    for reader in readers:
        reader.cancel()
    ends = await asyncio.gather(*readers, return_exceptions=True)
    for end in ends:
        if isinstance(end, Exception):
            raise end
    return outcome


async def _by_message(messages: Subscription, countdown: _Countdown) -> None:
    following = 0
    async for message in messages:
        if message.offset != following or not message.value:
            countdown.out_of_order += 1
        following = message.offset + 1
        countdown.left -= 1
        if not countdown.left:
            return
    raise CallEnded


async def _by_batch(messages: Subscription, countdown: _Countdown) -> None:
    following = 0
    async for batch in messages.batches():
        for message in batch:
            if message.offset != following or not message.value:
                countdown.out_of_order += 1
            following = message.offset + 1
        countdown.left -= len(batch)
        if countdown.left <= 0:
            return
    raise CallEnded
