"""Parts of a log that committed readings read again, through outages."""

from __future__ import annotations

import asyncio
from typing import Final

import pytest

from liftbridge_aio import Client, Message, StartAt, SubscriptionLost
from liftbridge_aio.testing import FaultProxy
from liftbridge_aio.transactions import ReadCommitted
from support.faults import BOUND, Options, eventually
from support.servers.node import Server
from support.transaction_logs import log_of, publish_records, records_of

DATA_PATHS: Final = ["lane"]
COUNT: Final = 1500
FORGETFUL: Final = ReadCommitted(max_messages=1)
EARLIEST: Final = StartAt.earliest()


@pytest.fixture
async def stream(server: Server, stream_name: str) -> str:
    """A stream with one long transaction, and a message behind it."""
    log = " ".join(f"A{n}c" for n in range(1, COUNT + 1)) + f" A{COUNT + 1}/0/0 -"
    async with Client(server.address) as client:
        await client.create_stream(stream_name)
        await publish_records(client, stream_name, records_of(log_of(log)))
    return stream_name


@pytest.mark.parametrize("seconds", [0.0, 1.2])
async def test_a_part_is_read_on_after_an_outage(
    proxy: FaultProxy, options: Options, stream: str, seconds: float
) -> None:
    """Also one that lasts longer than a call may."""
    found: list[Message] = []
    chosen = options(call_timeout=0.6, resubscribe_timeout=BOUND)
    async with (
        Client(proxy.address, options=chosen) as client,
        client.subscribe(stream, partition=0, start=EARLIEST, committed=FORGETFUL) as reading,
    ):
        waiting = asyncio.create_task(anext(reading))
        await eventually(lambda: reading.position == COUNT)
        if seconds:
            await proxy.refuse()
        await proxy.cut()
        await asyncio.sleep(seconds)
        if seconds:
            await proxy.accept()
        async with asyncio.timeout(BOUND):
            found.append(await waiting)
            while len(found) <= COUNT:
                found.append(await anext(reading))
    assert [message.offset for message in found] == [*range(COUNT), COUNT + 1]


async def test_a_part_is_given_up_as_late_as_its_reading(
    proxy: FaultProxy, options: Options, stream: str
) -> None:
    chosen = options(call_timeout=0.3, resubscribe_timeout=0.6)
    async with (
        Client(proxy.address, options=chosen) as client,
        client.subscribe(stream, partition=0, start=EARLIEST, committed=FORGETFUL) as reading,
    ):
        waiting = asyncio.create_task(anext(reading))
        await eventually(lambda: reading.position == COUNT)
        await proxy.refuse()
        await proxy.cut()
        async with asyncio.timeout(BOUND):
            with pytest.raises(SubscriptionLost):
                await waiting
        assert reading.position == COUNT
