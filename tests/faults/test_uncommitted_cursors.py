"""Cursors that a lone server does not show, as it lost its high watermark in a restart."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final

import pytest

from liftbridge_aio import Client, ClientOptions, CursorsUnavailable
from liftbridge_aio.broker import EmbeddedBroker, Flaws
from support.faults import BOUND, QUICK, eventually

STORED: Final = 40


@pytest.fixture
async def restarted() -> AsyncIterator[EmbeddedBroker]:
    """A broker that shows an older position of the one cursor it has until the next write."""
    async with EmbeddedBroker(cursors_partitions=1, flaws=Flaws(hides_committed=True)) as broker:
        async with Client(broker.address) as client:
            await client.create_stream("s")
            await client.set_cursor("me", "s", 0, STORED - 1)
            await asyncio.sleep(6)  # a stopped broker forgets what it committed in five seconds
            await client.set_cursor("me", "s", 0, STORED)
        await broker.restart()
        await eventually(lambda: broker.statistics().streams)
        yield broker


async def test_a_cursor_is_found_though_writes_to_show_it_failed(
    restarted: EmbeddedBroker,
) -> None:
    """A server that has just started refuses writes."""
    restarted.faults.fail("SetCursor", code="UNKNOWN", text="nats: timeout", times=3)
    options = ClientOptions(backoff=QUICK, call_timeout=BOUND)
    async with Client(restarted.address, options=options) as client:
        assert await client.fetch_cursor("me", "s", 0) == STORED
    restarted.faults.assert_all_applied()


async def test_a_cursor_that_stays_hidden_is_not_taken_for_an_older_one(
    restarted: EmbeddedBroker,
) -> None:
    restarted.faults.fail("SetCursor", code="UNKNOWN", text="nats: timeout", times=None)
    options = ClientOptions(backoff=QUICK, call_timeout=2.0)
    async with Client(restarted.address, options=options) as client:
        with pytest.raises(CursorsUnavailable, match="uncommitted positions"):
            await client.fetch_cursor("me", "s", 0)
