"""The gateway as an ASGI application."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import replace

import httpx2

from liftbridge_aio import Client, LiftbridgeError
from liftbridge_aio.durable_streams import START, DurableStream, IdempotentProducer
from liftbridge_aio.durable_streams.gateway import Gateway, GatewayOptions
from liftbridge_aio.options import OWN_STREAM

from .program import PACE, Orders, Program, Surroundings, new_client


class Serving(Program):
    """The gateway; a producer of it that numbers its batches, and a reader that follows."""

    hosts = ("gateway",)
    may_end_with = (LiftbridgeError,)

    def __init__(self, world: Surroundings, orders: Orders) -> None:
        super().__init__(world, orders)
        self._stored: set[int] = set()
        """Numbers whose append was answered."""
        self._followed: list[int] = []
        """What the reader of this life has seen."""
        self._tried = 0
        self._lives = 0

    async def work(self, host: str) -> None:
        """Serve, append numbers, and follow them."""
        settings = GatewayOptions(replication_factor=3, stream=replace(OWN_STREAM, min_isr=2))
        self._lives += 1
        self._followed = []
        async with new_client(self.world) as client, Gateway(client, settings) as app:
            transport = httpx2.ASGITransport(app)
            async with (
                httpx2.AsyncClient(transport=transport) as http,
                DurableStream("http://localhost/v1/stream/numbers", http=http) as stream,
            ):
                await stream.create(content_type="application/json")
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(self._append(stream))
                    tasks.create_task(self._follow(stream))

    async def _append(self, stream: DurableStream) -> None:
        async with IdempotentProducer(stream, "till", epoch=self._lives) as producer:
            while True:
                number, self._tried = self._tried, self._tried + 1
                await producer.append(number)
                self._stored.add(number)
                await asyncio.sleep(2 * PACE)

    async def _follow(self, stream: DurableStream) -> None:
        async for item, _ in stream.read(offset=START, live=True):
            self._followed.append(item)

    def missing(self) -> Collection[bytes]:
        """Return the numbers that were stored and not followed."""
        return [b"%d" % each for each in self._stored - set(self._followed)]

    async def judge(self, client: Client) -> None:
        """Check that each number came once, and in order."""
        assert self._followed == sorted(set(self._followed))
