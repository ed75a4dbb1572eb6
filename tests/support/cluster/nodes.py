"""Helpers of the cluster tests: calls to single nodes, and waiting for changes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, TypeVar

from grpclib.exceptions import GRPCError, StreamTerminatedError

from liftbridge_aio import Client, StartAt
from liftbridge_aio.wire import proto, rpc
from support.raw import Wire, message

T = TypeVar("T")

BOUND: Final = 40.0
"""No test waits longer than this for a change of the cluster, in seconds."""

# Servers wait for dead peers until the deadline of the call, and then answer from a cache (W28).
_VIEW_TIMEOUT: Final = 0.3

EARLIEST: Final = StartAt.earliest()
CURSORS: Final = "__cursors"
CURSORS_PARTITIONS: Final = 3


@dataclass(frozen=True, slots=True)
class Roles:
    """The leader, followers and other nodes of a partition."""

    leader: str
    followers: tuple[str, ...]
    others: tuple[str, ...]


class Nodes:
    """A connection to every node of a cluster, whichever of them live."""

    def __init__(self, addresses: Mapping[str, str]) -> None:
        self._wires: dict[str, Wire] = {}
        for node_id, address in addresses.items():
            host, _, port = address.rpartition(":")
            self._wires[node_id] = Wire(host, int(port))

    def __getitem__(self, node_id: str) -> Wire:
        return self._wires[node_id]

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(self._wires)

    def close(self) -> None:
        for wire in self._wires.values():
            wire.close()

    async def view(self, node_id: str, stream: str, partition: int = 0) -> proto.PartitionMetadata:
        """Return one node's metadata of a partition, once it answers."""
        found: proto.PartitionMetadata | None = None

        async def answered() -> bool:
            nonlocal found
            found = await self._view(node_id, stream, partition)
            return found is not None

        await soon(answered)
        assert found is not None
        return found

    async def _view(
        self, node_id: str, stream: str, partition: int
    ) -> proto.PartitionMetadata | None:
        request = proto.FetchMetadataRequest(streams=[stream])
        with suppress(GRPCError, StreamTerminatedError, OSError):
            reply = await self[node_id].call(rpc.FETCH_METADATA, request, timeout=_VIEW_TIMEOUT)
            return reply.stream_metadata[0].partitions.get(partition)
        return None

    async def publish(self, node_id: str, stream: str, *values: bytes) -> list[int]:
        """Publish through a node, one after the other, with acks of all replicas: the offsets.

        The client would choose the node itself, perhaps one that is frozen.
        """
        offsets = []
        for value in values:
            request = message(stream, value, ack_policy=proto.AckPolicy.ALL)
            reply = await self[node_id].call(rpc.PUBLISH, request, timeout=BOUND)
            assert reply.ack is not None
            offsets.append(reply.ack.offset)
        return offsets

    async def roles(self, stream: str, partition: int = 0) -> Roles:
        """Return the leader, followers and other nodes of a partition while all are alive."""
        view = await self.view(self.ids[0], stream, partition)
        return Roles(
            view.leader,
            tuple(each for each in view.replicas if each != view.leader),
            tuple(each for each in self.ids if each not in view.replicas),
        )

    async def see(
        self,
        node_ids: Iterable[str],
        stream: str,
        condition: Callable[[proto.PartitionMetadata], bool],
        partition: int = 0,
    ) -> None:
        """Wait until each of these nodes says of the partition what is wanted."""
        for node_id in node_ids:

            async def seen(node_id: str = node_id) -> bool:
                return condition(await self.view(node_id, stream, partition))

            await soon(seen)

    async def new_leader(self, witnesses: Iterable[str], stream: str, old: str) -> str:
        """Wait until each witness names the same leader, and not `old`."""
        leaders: set[str] = set()

        async def moved() -> bool:
            nonlocal leaders
            leaders = {(await self.view(each, stream)).leader for each in witnesses}
            return len(leaders) == 1 and old not in leaders

        witnesses = tuple(witnesses)
        await soon(moved)
        [leader] = leaders
        return leader

    async def in_sync(self, witnesses: Iterable[str], stream: str, isr: Iterable[str]) -> None:
        """Wait until each witness says that just these replicas are in sync."""
        wanted = set(isr)
        await self.see(witnesses, stream, lambda view: set(view.isr) == wanted)


async def soon(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait until it holds.

    Raises:
        TimeoutError: It never did.
    """
    async with asyncio.timeout(BOUND):
        while not await condition():  # noqa: ASYNC110 - a server has no event to wait for
            await asyncio.sleep(0.02)


async def settled(ask: Callable[[], Awaitable[T]], unsettled: Callable[[T], bool]) -> T:
    """The first answer that is not of the kind that will change by itself.

    Raises:
        TimeoutError: They all were.
    """
    async with asyncio.timeout(BOUND):
        while unsettled(answer := await ask()):  # noqa: ASYNC110 - a server has no event to wait for
            await asyncio.sleep(0.02)
    return answer


async def everything(client: Client, stream: str, count: int) -> list[bytes]:
    """The first `count` values of partition 0; offsets must have neither gap nor repeat."""
    async with asyncio.timeout(BOUND), client.subscribe(stream, start=EARLIEST) as messages:
        found = [await anext(messages) for _ in range(count)]
    assert [message.offset for message in found] == list(range(count))
    return [message.value for message in found]
