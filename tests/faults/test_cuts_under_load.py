"""The connection is cut again and again while messages flow: nothing acked is lost or repeated."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial

from liftbridge_aio import (
    Client,
    IncorrectOffset,
    PublishOutcomeUnknown,
    StreamOptions,
)
from liftbridge_aio.testing import FaultProxy
from support.faults import BOUND, eventually, read_all

CUTS = 20
BETWEEN = 10
"""Messages that must be acked between two cuts, so that each cut hits a working connection."""


async def cut_while(
    proxy: FaultProxy, acked: Counter[bytes], publishing: asyncio.Task[None]
) -> None:
    for _ in range(CUTS):
        enough = acked.total() + BETWEEN
        await eventually(partial(_reached, publishing, acked, enough))
        await proxy.cut()


def _reached(task: asyncio.Task[None], done: Counter[bytes], count: int) -> bool:
    return task.done() or done.total() >= count


async def test_by_hand_with_offsets_an_unknown_outcome_can_be_settled(
    proxy: FaultProxy, client: Client, stream_name: str
) -> None:
    """Sending the same message at the same offset again tells whether the first one is stored."""
    await client.create_stream(
        stream_name, options=StreamOptions(optimistic_concurrency_control=True)
    )
    acked: Counter[bytes] = Counter()
    stored_unseen = 0
    done = asyncio.Event()

    async def publish_at(offset: int) -> bool:
        for attempt in range(100):
            try:
                await client.publish(stream_name, b"%d" % offset, expected_offset=offset)
            except PublishOutcomeUnknown:
                continue
            except IncorrectOffset:
                assert attempt, "nobody else publishes here"
                return False
            return True
        raise AssertionError(offset)

    async def publish() -> None:
        nonlocal stored_unseen
        offset = 0
        while not done.is_set():
            stored_unseen += not await publish_at(offset)
            acked[b"%d" % offset] += 1
            offset += 1

    publishing = asyncio.create_task(publish())
    await cut_while(proxy, acked, publishing)
    done.set()
    async with asyncio.timeout(BOUND):
        await publishing
    stored = await read_all(client, stream_name)
    assert [message.offset for message in stored] == list(range(acked.total()))
    assert [message.value for message in stored] == [b"%d" % n for n in range(acked.total())]


async def test_calls_survive_cuts_or_say_so(
    proxy: FaultProxy, client: Client, stream_name: str
) -> None:
    """Reads and idempotent calls are repeated by the client: users see no error at all."""
    await client.create_stream(stream_name, partitions=3)
    done = asyncio.Event()
    rounds: Counter[bytes] = Counter()

    async def call() -> None:
        while not done.is_set():
            number = rounds.total()
            await client.fetch_metadata([stream_name])
            assert (await client.fetch_partition_metadata(stream_name, 2)).newest_offset == -1
            await client.set_cursor("reader", stream_name, 1, number)
            assert await client.fetch_cursor("reader", stream_name, 1) == number
            await client.ping()
            rounds[b"round"] += 1

    calling = asyncio.create_task(call())
    for _ in range(CUTS):
        await eventually(partial(_reached, calling, rounds, rounds.total() + 1))
        await proxy.cut()
    done.set()
    async with asyncio.timeout(BOUND):
        await calling
    assert rounds.total() >= CUTS
