"""Partitions of numbers and a cursor, for the tests of subscriptions that store positions."""

from __future__ import annotations

from typing import Final

from liftbridge_aio import Client, Record

COUNT: Final = 10
PARTITIONS: Final = 3
CURSOR: Final = "reader"
SELDOM: Final = 3600.0
"""Seconds between two times of storing of which a test sees neither."""


class Failure(Exception):
    """An error raised in the body of a user's program."""


async def create_numbers(client: Client, stream: str) -> str:
    """Create a stream of some partitions, each of which holds the numbers."""
    await client.create_stream(stream, partitions=PARTITIONS)
    await client.publish_many(
        stream, [Record(b"%d" % n, partition=p) for n in range(COUNT) for p in range(PARTITIONS)]
    )
    return stream


async def stored(client: Client, stream: str, partition: int = 0) -> int | None:
    return await client.fetch_cursor(CURSOR, stream, partition)
