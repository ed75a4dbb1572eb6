"""The connection is cut again and again while messages flow: nothing acked is lost or repeated."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from functools import partial

from liftbridge_aio import (
    Client,
    IncorrectOffset,
    Message,
    PublishOutcomeUnknown,
    Retry,
    StartAt,
    StreamOptions,
)
from liftbridge_aio.retry import Backoff
from liftbridge_aio.testing import FaultProxy
from support.faults import BOUND, Recorder, eventually, read_all

CUTS = 20
BETWEEN = 10
"""Messages that must be acked between two cuts, so that each cut hits a working connection."""


async def tail(client: Client, stream: str, into: list[Message]) -> None:
    async with client.subscribe(stream, start=StartAt.earliest()) as subscription:
        async for message in subscription:
            into.append(message)
            if message.value == b"the end":
                return


async def cut_while(
    proxy: FaultProxy, acked: Counter[bytes], publishing: asyncio.Task[None]
) -> None:
    for _ in range(CUTS):
        enough = acked.total() + BETWEEN
        await eventually(partial(_reached, publishing, acked, enough))
        await proxy.cut()


def _reached(task: asyncio.Task[None], done: Counter[bytes], count: int) -> bool:
    return task.done() or done.total() >= count


async def test_pipelined_publishing_and_tailing(
    proxy: FaultProxy, client: Client, stream_name: str, recorder: Recorder
) -> None:
    """200 in flight at any time; what ends in an unknown outcome is sent again as a new message."""
    await client.create_stream(stream_name)
    sent: Counter[bytes] = Counter()
    acked: Counter[bytes] = Counter()
    offsets: dict[int, bytes] = {}
    room = asyncio.Semaphore(200)
    enough = asyncio.Event()

    async def publish_until_acked(value: bytes) -> None:
        while value not in acked:
            sent[value] += 1
            with contextlib.suppress(PublishOutcomeUnknown):
                ack = await client.publish(stream_name, value)
                assert ack is not None
                assert ack.offset not in offsets
                offsets[ack.offset] = value
                acked[value] += 1
        room.release()

    async def publish() -> None:
        number = 0
        async with asyncio.TaskGroup() as group:
            while not enough.is_set():
                await room.acquire()
                group.create_task(publish_until_acked(b"%d" % number))
                number += 1

    read: list[Message] = []
    tailing = asyncio.create_task(tail(client, stream_name, read))
    publishing = asyncio.create_task(publish())
    await cut_while(proxy, acked, publishing)
    enough.set()
    async with asyncio.timeout(BOUND):
        await publishing
        await client.publish(stream_name, b"the end")
        await tailing

    assert [message.offset for message in read] == list(range(len(read)))
    assert [message.value for message in await read_all(client, stream_name)] == [
        message.value for message in read
    ]
    for offset, value in offsets.items():
        assert read[offset].value == value
    stored = Counter(message.value for message in read)
    assert stored.keys() - {b"the end"} == sent.keys() == acked.keys()
    assert all(1 <= stored[value] <= sent[value] for value in sent)
    assert len(recorder.down) >= CUTS
    assert recorder.resumed


async def test_exactly_once_where_the_log_checks_offsets(
    proxy: FaultProxy, client: Client, stream_name: str
) -> None:
    """Each message names its offset; the client itself finds out what became of a lost try."""
    await client.create_stream(
        stream_name, options=StreamOptions(optimistic_concurrency_control=True)
    )
    acked: Counter[bytes] = Counter()
    done = asyncio.Event()
    retry = Retry(attempts=50, backoff=Backoff(initial=0.002, maximum=0.02))

    async def publish() -> None:
        offset = 0
        while not done.is_set():
            value = b"%d" % offset
            ack = await client.publish(stream_name, value, expected_offset=offset, retry=retry)
            assert ack is not None
            assert ack.offset == offset
            acked[value] += 1
            offset += 1
        await client.publish(stream_name, b"the end", expected_offset=offset, retry=retry)

    read: list[Message] = []
    tailing = asyncio.create_task(tail(client, stream_name, read))
    publishing = asyncio.create_task(publish())
    await cut_while(proxy, acked, publishing)
    done.set()
    async with asyncio.timeout(BOUND):
        await publishing
        await tailing

    assert [message.offset for message in read] == list(range(acked.total() + 1))
    assert [message.value for message in read[:-1]] == [b"%d" % n for n in range(acked.total())]


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
