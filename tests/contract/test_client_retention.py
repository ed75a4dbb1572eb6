"""Readers of the client, while retention and compaction take away what they have read."""

from __future__ import annotations

import asyncio

from liftbridge_aio import Client, StartAt
from support.raw import BOUND, Wire
from support.segments import (
    MAX_AGE,
    become,
    becomes_empty,
    create,
    create_compacted,
    publish_keys,
)


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


async def test_a_tail_does_not_notice_compaction(
    client: Client, wire: Wire, cleaned_stream: str
) -> None:
    await create_compacted(wire, cleaned_stream)
    async with (
        asyncio.timeout(BOUND),
        client.subscribe(cleaned_stream, start=StartAt.earliest()) as messages,
    ):
        await publish_keys(wire, cleaned_stream, "aba")
        assert [(await anext(messages)).offset for _ in range(3)] == [0, 1, 2]
        await become(wire, cleaned_stream, [1, 2])
        await publish_keys(wire, cleaned_stream, "ba")
        assert [(await anext(messages)).offset for _ in range(2)] == [3, 4]
        await become(wire, cleaned_stream, [3, 4])
        await publish_keys(wire, cleaned_stream, "-")
        assert (await anext(messages)).offset == 5


async def everything_is_forgotten(wire: Wire, stream: str, number: int) -> None:
    """Wait until a stream that was made and filled in the same way later is empty."""
    later = f"{stream}-{number}"
    await create(wire, later, retention_max_age=2 * MAX_AGE)
    await wire.publish(later, b"")
    await becomes_empty(wire, later)
    await wire.pause(later)
