"""Both ends of a bridge, and bridges in processes of their own, which are killed."""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from liftbridge_aio import Client, nsq, stan
from support.clients import read_out
from support.servers.node import LiftbridgeNode
from support.servers.nsq_daemons import NsqDaemon
from support.servers.streaming import StreamingServer


@dataclass(slots=True)
class Ends:
    """A client of each system, and the name of stream, channel and topic."""

    name: str
    lift: Client
    stan: stan.Client
    producer: nsq.Producer
    node: LiftbridgeNode
    streaming: StreamingServer
    nsqd: NsqDaemon

    @property
    def lift_url(self) -> str:
        return f"liftbridge://{self.node.address}/{self.name}"

    @property
    def stan_url(self) -> str:
        address = self.streaming.url.removeprefix("nats://")
        return f"stan://{address}/{self.streaming.cluster}/{self.name}"

    @property
    def nsq_url(self) -> str:
        return f"nsq://{self.nsqd.address}/{self.name}/moving"

    async def in_stream(self) -> list[bytes]:
        """The values in the stream, without what a bridge adds."""
        messages = await read_out(self.lift, self.name)
        return [each.value for each in messages if "bridge-marker" not in each.headers]

    async def in_channel(self, count: int) -> list[bytes]:
        """The first messages of the channel."""
        async with self.stan.subscribe(
            self.name, start=stan.StartAt.earliest(), max_in_flight=10_000
        ) as subscription:
            async with asyncio.timeout(30):
                return [(await anext(subscription)).data for _ in range(count)]

    async def in_topic(self, until: Callable[[list[bytes]], bool]) -> list[bytes]:
        """The messages of the topic's channel, until they are enough."""
        found: list[bytes] = []
        async with nsq.Consumer(
            self.name, "moving", nsqd=[self.nsqd.address], max_in_flight=500
        ) as consumer:
            async with asyncio.timeout(30):
                while not until(found):
                    message = await anext(consumer)
                    await message.finish()
                    found.append(message.body)
        return found


async def start_bridge(*arguments: str) -> asyncio.subprocess.Process:
    """Start the command in a process of its own."""
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "liftbridge_aio", "bridge", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def finish_bridge(*arguments: str) -> dict[str, Any]:
    """Run the command with --once and return its progress."""
    process = await start_bridge(*arguments, "--once", "--json")
    async with asyncio.timeout(60):
        out, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    progress: dict[str, Any] = json.loads(out)
    return progress


async def kill_again_and_again(
    times: int,
    arguments: tuple[str, ...],
    has_begun: Callable[[], Awaitable[bool]],
    longest: float,
) -> None:
    """Start a bridge and kill it at a random moment after it has begun to copy, so many times."""
    for _ in range(times):
        process = await start_bridge(*arguments)
        try:
            async with asyncio.timeout(30):
                while not await has_begun():
                    assert process.returncode is None, await process.communicate()
                    await asyncio.sleep(0.01)
            await asyncio.sleep(random.random() * longest)
        finally:
            process.kill()
            await process.communicate()
