"""Consumer groups after the server was gone for a while."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from liftbridge_aio.broker import EmbeddedBroker
from support.groups.group_calls import NO_GROUP, Group
from support.raw import Wire, eventually
from support.servers.build import pinned_version
from support.servers.node import LiftbridgeNode
from support.servers.ports import free_ports

StartRealServer = Callable[..., LiftbridgeNode]


class RealServer:
    """A real server, which is killed."""

    def __init__(self, start: StartRealServer) -> None:
        self._start = start
        self._node: LiftbridgeNode | None = None

    async def start(self) -> tuple[str, int]:
        """Start it, for the first time or again."""
        if self._node is None:
            self._node = await asyncio.to_thread(self._start)
        await asyncio.to_thread(self._node.start)
        return self._node.host, self._node.port

    async def stop(self) -> None:
        """Kill it."""
        if self._node is not None:
            await asyncio.to_thread(self._node.kill)


class Embedded:
    """An embedded broker, whose data lives in the object."""

    def __init__(self) -> None:
        self._broker = EmbeddedBroker(
            port=free_ports(1)[0], consumer_timeout=2, coordinator_timeout=1
        )

    async def start(self) -> tuple[str, int]:
        """Start it, for the first time or again."""
        await self._broker.start()
        return self._broker.host, self._broker.port

    async def stop(self) -> None:
        """Stop it."""
        await self._broker.stop()


@pytest.fixture(params=["embedded", pinned_version()])
async def restarting(request: pytest.FixtureRequest) -> AsyncIterator[Embedded | RealServer]:
    """Each kind of server in turn, not running."""
    if request.param == "embedded":
        server: Embedded | RealServer = Embedded()
    else:
        server = RealServer(request.getfixturevalue("start_real_server"))
    yield server
    await server.stop()


@asynccontextmanager
async def running(server: Embedded | RealServer) -> AsyncIterator[Wire]:
    """A connection to the server while it runs."""
    wire = Wire(*await server.start())
    try:
        yield wire
    finally:
        wire.close()
        await server.stop()


async def test_groups_survive_and_so_does_the_watch_over_their_members(
    restarting: Embedded | RealServer,
) -> None:
    async with running(restarting) as wire:
        await wire.create("stream", partitions=3)
        group = Group(wire, "group")
        await group.join("a", "stream")
        joined = await group.join("b", "stream")
        shares = await group.shares("a", "b")

    async with running(restarting) as wire:
        group = Group(wire, "group")
        known = await group.metadata()
        assert (known.coordinator, known.epoch) == (joined.coordinator, joined.epoch)
        assert await group.shares("a", "b") == shares

        async def is_gone() -> bool:
            return not await group.exists()

        await eventually(is_gone)
        assert await group.leave_refusal("a") == NO_GROUP
