"""The gateway as an ASGI application."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter, defaultdict
from collections.abc import Collection
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import ClassVar

import httpx2

from liftbridge_aio import Client, LiftbridgeError
from liftbridge_aio.durable_streams import START, DurableStream, IdempotentProducer
from liftbridge_aio.durable_streams.gateway import Gateway, GatewayOptions
from liftbridge_aio.options import OWN_STREAM

from .program import PACE, Orders, Program, Surroundings, new_client


class Serving(Program):
    """A gateway on each host; a producer of it that numbers its batches; readers that follow.

    At each gateway a reader follows the numbers of every producer.
    """

    hosts: ClassVar[tuple[str, ...]] = ("gateway",)
    may_end_with = (LiftbridgeError,)

    def __init__(self, world: Surroundings, orders: Orders) -> None:
        super().__init__(world, orders)
        self._stored: defaultdict[str, set[int]] = defaultdict(set)
        """By producer: the numbers whose append was answered."""
        self._followed: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
        """By gateway and producer: what the reader of this life has seen."""
        self._tried: Counter[str] = Counter()
        self._lives: Counter[str] = Counter()

    async def work(self, host: str) -> None:
        """Serve, append numbers, and follow them."""
        settings = GatewayOptions(replication_factor=3, stream=replace(OWN_STREAM, min_isr=2))
        self._lives[host] += 1
        async with new_client(self.world) as client, Gateway(client, settings) as app:
            transport = httpx2.ASGITransport(app)
            async with httpx2.AsyncClient(transport=transport) as http, AsyncExitStack() as stack:
                streams = {
                    each: DurableStream(f"http://localhost/v1/stream/{each}", http=http)
                    for each in self.hosts
                }
                for stream in streams.values():
                    await stack.enter_async_context(stream)
                    await stream.create(content_type="application/json")
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(self._append(host, streams[host]))
                    for each, stream in streams.items():
                        followed = self._followed[host, each] = []
                        tasks.create_task(self._follow(stream, followed))

    async def _append(self, host: str, stream: DurableStream) -> None:
        async with IdempotentProducer(stream, "till", epoch=self._lives[host]) as producer:
            while True:
                number, self._tried[host] = self._tried[host], self._tried[host] + 1
                await producer.append(number)
                self._stored[host].add(number)
                await asyncio.sleep(2 * PACE)

    async def _follow(self, stream: DurableStream, followed: list[int]) -> None:
        async for item, _ in stream.read(offset=START, live=True):
            followed.append(item)

    def missing(self) -> Collection[bytes]:
        """Return the numbers that were stored and not followed."""
        return [
            f"{each} at {host}: {number}".encode()
            for host, each in itertools.product(self.hosts, self.hosts)
            for number in self._stored[each].difference(self._followed[host, each])
        ]

    async def judge(self, client: Client) -> None:
        """Check that each number came once, and in order."""
        for place, followed in self._followed.items():
            assert followed == sorted({*followed}), f"{place}: {followed}"
