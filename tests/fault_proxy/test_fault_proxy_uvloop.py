"""The fault proxy on uvloop, whose sockets end in another way than asyncio's."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from liftbridge_aio._core.addresses import parse_address
from liftbridge_aio.testing import FaultProxy
from support.peers.tcp import BOUND

uvloop = pytest.importorskip("uvloop", reason="uvloop is not for this platform")


async def end(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()


async def cut_while_connecting() -> None:
    """Connections are cut in every step that they take to come about."""
    server = await asyncio.start_server(end, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    async with FaultProxy(f"{host}:{port}") as proxy:
        for number in range(200):
            dials = [
                asyncio.create_task(asyncio.open_connection(*parse_address(proxy.address)))
                for _ in range(5)
            ]
            for _ in range(number % 20):
                await asyncio.sleep(0)
            await asyncio.wait_for(proxy.cut(), BOUND)
            for dial in dials:
                with contextlib.suppress(ConnectionError):
                    _, writer = await dial
                    writer.close()
        assert proxy.statistics().connections > 200
    server.close()


def test_connections_that_are_cut_while_they_come_about() -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(cut_while_connecting())
