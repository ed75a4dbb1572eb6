"""The client on uvloop, an event loop of another make."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from liftbridge_aio import Client, ClientOptions, StartAt
from liftbridge_aio.broker import EmbeddedBroker
from liftbridge_aio.testing import FaultProxy
from support.faults import nothing_left_behind, outcomes_of, take
from support.servers.node import LiftbridgeNode

uvloop = pytest.importorskip("uvloop", reason="uvloop is not for this platform")


async def use(address: str, stream: str) -> None:
    """Publish, read, survive a cut and a half-open link, close."""
    async with FaultProxy(address) as proxy, nothing_left_behind():
        options = ClientOptions(
            address_map=lambda _: proxy.address, health_interval=0.3, health_timeout=0.2
        )
        async with Client(proxy.address, options=options) as client:
            await client.create_stream(stream)
            async with client.subscribe(stream, start=StartAt.earliest()) as subscription:
                futures = [await client.publish_async(stream, b"%d" % n) for n in range(500)]
                assert len((await outcomes_of(futures, 15.0)).acked) == 500
                await take(subscription, 250)
                await proxy.cut()
                await client.fetch_metadata()
                assert [each.offset for each in await take(subscription, 250)] == list(
                    range(250, 500)
                )
                proxy.freeze()
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.1):
                        await client.publish(stream, b"abandoned")
                proxy.thaw()
            await client.set_cursor("reader", stream, 0, 3)
            assert await client.fetch_cursor("reader", stream, 0) == 3


async def use_embedded(stream: str) -> None:
    async with EmbeddedBroker() as broker:
        await use(broker.address, stream)


def run(scenario: Any) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        with contextlib.closing(scenario):
            runner.run(asyncio.wait_for(scenario, 30.0))
        assert type(runner.get_loop()).__module__.startswith("uvloop")


def test_on_the_embedded_broker(stream_name: str) -> None:
    """Client and server in one loop."""
    run(use_embedded(stream_name))


def test_on_the_real_server(real_server: LiftbridgeNode, stream_name: str) -> None:
    run(use(real_server.address, stream_name))
