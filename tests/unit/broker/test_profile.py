"""A broker that behaves like a server after 1.9: the client reads in reverse from it."""

from __future__ import annotations

from liftbridge_aio import Client, StartAt, StopAt
from liftbridge_aio.broker import EmbeddedBroker, ServerProfile


async def test_a_reverse_stop_is_applied_although_the_server_refuses_it() -> None:
    async with (
        EmbeddedBroker(profile=ServerProfile.NEWER) as broker,
        Client(broker.address) as client,
    ):
        await client.create_stream("s")
        await client.publish_many("s", [b""] * 5)
        stop = StopAt.offset(3)
        messages = client.subscribe("s", start=StartAt.latest(), stop=stop, reverse=True)
        assert [message.offset async for message in messages] == [4, 3]
