"""Connections that arrive while a broker stops."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress

from liftbridge_aio.broker import EmbeddedBroker


async def test_connections_accepted_during_a_stop_are_closed() -> None:
    async with EmbeddedBroker() as broker:
        address = (broker.host, broker.port)
        clients = [socket.create_connection(address) for _ in range(3)]
        await asyncio.sleep(0)  # the event loop now accepts them while the broker begins to stop
        await broker.stop()
        loop = asyncio.get_running_loop()
        for client in clients:
            client.settimeout(0)
            with suppress(ConnectionResetError):
                async with asyncio.timeout(5):
                    while await loop.sock_recv(client, 1000):
                        pass
            client.close()
