"""A client belongs to the event loop in which it connects, not to where it was made."""

from __future__ import annotations

import asyncio

from faults.support import BOUND
from liftbridge_aio import Client
from liftbridge_aio.broker import EmbeddedBroker
from servers.ports import free_ports


def test_it_may_be_made_before_there_is_a_loop() -> None:
    """As a value of a module, in many programs."""
    [port] = free_ports(1)
    broker, client = EmbeddedBroker(port=port), Client(f"127.0.0.1:{port}")

    async def program() -> None:
        async with asyncio.timeout(BOUND), broker, client:
            await client.create_stream("s")
            assert (await client.publish("s", b"value")).offset == 0

    asyncio.run(program())
