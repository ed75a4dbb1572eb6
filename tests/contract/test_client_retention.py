"""Readers of the client, while retention takes away what they have read."""

from __future__ import annotations

import asyncio

from contract.raw import BOUND, Wire
from contract.segments import MAX_AGE, becomes_empty, create
from liftbridge_aio import Client, StartAt


async def test_a_tail_goes_on_after_all_that_it_has_read_is_forgotten(
    client: Client, wire: Wire, cleaned_stream: str
) -> None:
    await create(wire, cleaned_stream, retention_max_age=MAX_AGE)
    async with (
        asyncio.timeout(BOUND),
        client.subscribe(cleaned_stream, start=StartAt.earliest()) as messages,
    ):
        for number in range(3):
            value = b"%d" % number
            await client.publish(cleaned_stream, value)
            assert (await anext(messages)).value == value
            await everything_is_forgotten(wire, cleaned_stream, number)


async def everything_is_forgotten(wire: Wire, stream: str, number: int) -> None:
    """Wait until a stream that was made and filled in the same way later is empty."""
    later = f"{stream}-{number}"
    await create(wire, later, retention_max_age=2 * MAX_AGE)
    await wire.publish(later, b"")
    await becomes_empty(wire, later)
    await wire.pause(later)
