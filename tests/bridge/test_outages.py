"""A bridge rides out servers that are killed, cut off or silent, and loses nothing."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from conftest import StartRealServer
from liftbridge_aio import Client, StreamOptions, nsq, stan
from liftbridge_aio.bridge import ID_HEADER, SOURCE_HEADER, Bridge
from liftbridge_aio.errors import LiftbridgeError
from liftbridge_aio.testing import FaultProxy
from support.bridges import Ends, eventually
from support.servers.nsq_daemons import NsqDaemon
from support.servers.streaming import StreamingServer

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
async def own_ends(
    streaming_binary: Path,
    nsq_programs: None,  # noqa: ARG001
    start_real_server: StartRealServer,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[Ends]:
    """Servers that the test may break."""
    node = start_real_server()
    streaming = StreamingServer(
        streaming_binary, tmp_path_factory.mktemp("own"), "FILE", ("-hbi", "2s", "-hbt", "1s")
    )
    nsqd = NsqDaemon("nsqd", tmp_path_factory.mktemp("nsqd"))
    streaming.start()
    nsqd.start()
    try:
        async with (
            Client(node.address) as lift,
            stan.Client(streaming.url, cluster=streaming.cluster, client_id="test") as channel,
            nsq.Producer(nsqd.address) as producer,
        ):
            yield Ends(f"orders-{os.getpid()}", lift, channel, producer, node, streaming, nsqd)
    finally:
        streaming.stop()
        nsqd.stop()


async def insist(publish: Callable[[bytes], Awaitable[None]], value: bytes) -> None:
    """Publish until it succeeds, which may store it twice."""
    async with asyncio.timeout(60):
        while True:
            try:
                return await publish(value)
            except LiftbridgeError:
                await asyncio.sleep(0.2)


class Flow:
    """A bridge, what was published on its one side, and what has arrived on the other."""

    def __init__(
        self, bridge: Bridge, publish: Callable[[bytes], Awaitable[None]], arrived: list[bytes]
    ) -> None:
        self.bridge = bridge
        self.published: list[bytes] = []
        self._publish = publish
        self._arrived = arrived

    async def more(self, count: int) -> None:
        """Publish so many messages."""
        for _ in range(count):
            value = b"%d" % len(self.published)
            await insist(self._publish, value)
            self.published.append(value)

    @property
    def is_even(self) -> bool:
        """True when everything has arrived."""
        return set(self.published) <= set(self._arrived)


async def test_servers_that_are_killed_or_silent_lose_nothing(own_ends: Ends) -> None:
    ends = own_ends
    there, back, out, away, first, mirror = (
        replace(ends, name=f"{ends.name}-{n}") for n in range(6)
    )
    checked = StreamOptions(optimistic_concurrency_control=True)
    for each in (there, back, out, away, first, mirror):
        await ends.lift.create_stream(each.name, options=checked)
    async with AsyncExitStack() as stack, asyncio.TaskGroup() as group:
        flows = []
        for source, target, publish, arriving in (
            (there.stan_url, there.lift_url, there.to_channel, there.arriving_in_stream()),
            (back.nsq_url, back.lift_url, back.to_topic, back.arriving_in_stream()),
            (out.lift_url, out.stan_url, out.to_stream, out.arriving_in_channel()),
            (away.lift_url, away.nsq_url, away.to_stream, away.arriving_in_topic()),
            (first.lift_url, mirror.lift_url, first.to_stream, mirror.arriving_in_stream()),
        ):
            arrived = await stack.enter_async_context(arriving)
            bridge = Bridge(source, target, message_timeout=2)
            flows.append(Flow(bridge, publish, arrived))
        running = [group.create_task(flow.bridge.run()) for flow in flows]

        async def all_publish(count: int) -> None:
            await asyncio.gather(*(flow.more(count) for flow in flows))

        for server in (ends.streaming, ends.nsqd, ends.node):
            await all_publish(100)
            if server is ends.nsqd:  # what it has in memory it would lose
                await eventually(lambda: all(flow.is_even for flow in flows))
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start)
            await all_publish(20)
            await eventually(lambda: all(flow.is_even for flow in flows))
        for process in (ends.streaming.process, ends.nsqd.process, ends.node):
            assert process is not None
            publishing = group.create_task(all_publish(100))
            process.freeze()
            await asyncio.sleep(2)
            process.thaw()
            await publishing
            await eventually(lambda: all(flow.is_even for flow in flows))
        for task in running:
            task.cancel()
    stored = await there.in_stream()
    async with there.arriving_in_channel() as channel:
        await eventually(lambda: len(channel) >= len(stored))
    assert stored == channel
    assert await mirror.in_stream() == await first.in_stream()


async def test_links_that_are_cut_or_half_open_are_replaced(own_ends: Ends) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(over_bad_link(replace(own_ends, name=f"{own_ends.name}-a"), "stan"))
        group.create_task(over_bad_link(replace(own_ends, name=f"{own_ends.name}-b"), "nsq"))


async def over_bad_link(ends: Ends, system: str) -> None:
    server = ends.streaming.url.removeprefix("nats://") if system == "stan" else ends.nsqd.address
    publish = ends.to_channel if system == "stan" else ends.to_topic
    async with FaultProxy(server) as proxy, asyncio.TaskGroup() as group:
        url = ends.stan_url if system == "stan" else ends.nsq_url
        bridge = Bridge(url.replace(server, proxy.address), ends.lift_url, message_timeout=2)
        for n in range(100):
            await publish(b"%d" % n)
        running = group.create_task(bridge.run())
        await eventually(lambda: bridge.progress.copied == 100)
        for n in range(100, 200):
            await publish(b"%d" % n)
        await proxy.cut()
        await eventually(lambda: bridge.progress.copied == 200)
        proxy.freeze()
        for n in range(200, 300):
            await publish(b"%d" % n)
        await eventually(lambda: not bridge.is_connected)
        await proxy.heal()
        await eventually(lambda: bridge.progress.copied == 300)
        running.cancel()
    assert sorted(await ends.in_stream(), key=int) == [b"%d" % n for n in range(300)]


async def test_repeats_are_known_after_a_crash_of_the_target(own_ends: Ends) -> None:
    """A lone server hides what it stored before it was killed until something is published."""
    ends = own_ends
    await ends.to_topic(b"bread")
    async with nsq.Consumer(ends.name, "moving", nsqd=[ends.nsqd.address]) as consumer:
        message = await anext(consumer)
        identity = f"{message.address}/{message.id.decode()}".encode()
        await message.requeue(0, backoff=False)
    await ends.lift.create_stream(ends.name)  # as if a bridge had been killed before FIN
    headers = {SOURCE_HEADER: f"nsq/{ends.name}".encode(), ID_HEADER: identity}
    await ends.lift.publish(ends.name, b"bread", headers=headers)
    await asyncio.to_thread(ends.node.kill)
    await asyncio.to_thread(ends.node.start)
    progress = await Bridge(ends.nsq_url, ends.lift_url, once=True, message_timeout=1).run()
    assert (progress.copied, progress.repeats) == (0, 1)
