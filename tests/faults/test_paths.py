"""The tests here run on both paths, and on each it really is that one."""

from __future__ import annotations

import asyncio

from liftbridge_aio import Client
from support.servers.node import Server


async def test_only_the_plain_path_has_tasks_that_hand_messages_on(
    server: Server, stream_name: str, data_path: str
) -> None:
    async with Client(server.address) as client:
        await client.create_stream(stream_name)
        await client.publish(stream_name, b"x")
        async with client.subscribe(stream_name):
            pumps = [task for task in asyncio.all_tasks() if "pump" in task.get_name()]
            assert len(pumps) == {"lane": 0, "plain": 2}[data_path]
