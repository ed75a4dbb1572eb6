"""A broker that behaves like a server after 1.9: the client reads in reverse from it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from liftbridge_aio import Client, StartAt, StopAt
from liftbridge_aio.broker import EmbeddedBroker, ServerProfile

COUNT = 5


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with (
        EmbeddedBroker(profile=ServerProfile.NEWER) as broker,
        Client(broker.address) as client,
    ):
        await client.create_stream("s")
        yield client


async def backwards(client: Client, start: StartAt, stop: StopAt | None = None) -> list[int]:
    messages = client.subscribe("s", start=start, stop=stop, reverse=True)
    return [message.offset async for message in messages]


@pytest.mark.parametrize(
    ("start", "offsets"),
    [
        (StartAt.latest(), [4, 3, 2, 1, 0]),
        (StartAt.offset(2), [2, 1, 0]),
    ],
)
async def test_reverse_reads_from_a_start_down_to_the_first_message(
    client: Client, start: StartAt, offsets: list[int]
) -> None:
    await client.publish_many("s", [b""] * COUNT)
    assert await backwards(client, start) == offsets


async def test_a_reverse_stop_is_applied_although_the_server_refuses_it(client: Client) -> None:
    await client.publish_many("s", [b""] * COUNT)
    assert await backwards(client, StartAt.latest(), StopAt.offset(3)) == [4, 3]


async def test_an_empty_stream_has_nothing_to_read_backwards(client: Client) -> None:
    assert await backwards(client, StartAt.latest()) == []
