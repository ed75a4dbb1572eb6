"""Streams in which messages wait for their next attempt, one for each length of the wait.

All messages of a tier wait equally long, so they are due in the order of its log. The members of
the group read tiers as they read the stream of the queue.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from typing import Final
from urllib.parse import quote

from liftbridge_aio._admin.streams import StreamAdministration
from liftbridge_aio._core.absence import Incarnation
from liftbridge_aio._core.log_position import LogPosition
from liftbridge_aio._subscribe.committed_state import committed_state
from liftbridge_aio.errors import LiftbridgeError, NotFound
from liftbridge_aio.groups.fenced_cursors import beginning_cursor
from liftbridge_aio.interceptors import AckFuture
from liftbridge_aio.model import (
    Ack,
    AckPolicy,
    Message,
    OutgoingMessage,
    StreamPartition,
)
from liftbridge_aio.net.network import Network
from liftbridge_aio.options import StreamOptions
from liftbridge_aio.retry import Retry
from liftbridge_aio.transactions.core.transaction import AckIntent

from .acks_store import AcksStream, Claim
from .core.ack_window import Snapshot
from .core.moved_message import (
    ATTEMPTS_HEADER,
    DUE_HEADER,
    OFFSET_HEADER,
    PARTITION_HEADER,
    STREAM_HEADER,
    origin_of,
    tier_for,
)

_LOOK_INTERVAL: Final = 1.0
"""Seconds between two looks whether a server was restarted."""


def tier_stream(stream: str, group: str, tier: float) -> str:
    """Return the name of the stream in which messages of a group wait for `tier` seconds."""
    return f"{stream}.retry.{quote(group, safe='').replace('.', '%2E')}.{tier:g}s"


class RetryTiers:
    """The tiers of a queue.

    Args:
        stream: the stream of the queue.
        group: the id of the group.
        tiers: seconds, ascending.
        submit: publishes a message.
    """

    def __init__(
        self,
        stream: str,
        group: str,
        tiers: tuple[float, ...],
        submit: Callable[[OutgoingMessage], Awaitable[AckFuture]],
    ) -> None:
        self.streams = {tier: tier_stream(stream, group, tier) for tier in tiers}
        self._tiers = tiers
        self._submit = submit

    async def create(
        self, stream: str, streams: StreamAdministration, network: Network, timeout: float
    ) -> None:
        """Create those that do not exist, like the stream of the queue.

        Cancelling may leave some created.

        Raises:
            LiftbridgeError: one could not be created.
        """
        found = (await network.metadata.stream(stream, timeout)).partitions
        for name in self.streams.values():
            await streams.create(
                name,
                name,
                partitions=len(found),
                replication_factor=max(1, min(len(each.replicas) for each in found.values())),
                group=None,
                options=StreamOptions(),
                exist_ok=True,
                timeout=timeout,
            )

    async def delete(self, streams: StreamAdministration, timeout: float) -> None:
        """Delete all. Cancelling may leave some deleted.

        Raises:
            LiftbridgeError: one could not be deleted.
        """
        for name in self.streams.values():
            with suppress(NotFound):
                await streams.delete(name, timeout)

    async def keep_visible(
        self, assignment: Callable[[], Iterable[StreamPartition]], network: Network, timeout: float
    ) -> None:
        """Publish something where a restarted server hides messages of the tiers; see `is_filler`.

        Nobody else may: they would be hidden until another message waits in their partition.
        Cancelling ends it.

        Args:
            assignment: returns the partitions of this member.
            network: the network of the client.
            timeout: seconds for each call.
        """
        names = frozenset(self.streams.values())
        checked: dict[StreamPartition, Incarnation] = {}
        while True:
            for place in assignment():
                leader = network.metadata.snapshot.leader(*place)
                if place.stream not in names or leader is None:
                    continue
                server = network.pool.incarnation(network.router.address_of(leader))
                if checked.get(place) != server:
                    with suppress(LiftbridgeError):  # tried again
                        await self._make_visible(place, network, timeout)
                        checked[place] = server
            await asyncio.sleep(_LOOK_INTERVAL)

    async def _make_visible(self, place: StreamPartition, network: Network, timeout: float) -> None:
        async def publish(_offset: int) -> None:
            filler = OutgoingMessage(
                place.stream,
                b"",
                partition=place.partition,
                ack_policy=AckPolicy.ALL,
                timeout=timeout,
            )
            await (await self._submit(filler))

        await committed_state(lambda: network.metadata.partition(*place, timeout), publish)

    async def move(self, message: Message, attempts: int, delay: float) -> None:
        """Store a message that is due after a delay. Cancelling may leave it stored.

        Raises:
            LiftbridgeError: it is not known to be stored.
        """
        stream, partition, offset = origin_of(message)
        headers = {
            **message.headers,
            STREAM_HEADER: stream.encode(),
            PARTITION_HEADER: b"%d" % partition,
            OFFSET_HEADER: b"%d" % offset,
        }
        await self.publish(
            message.value, message.key or None, headers, message.partition, attempts, delay
        )

    async def publish(
        self,
        value: bytes,
        key: bytes | None,
        headers: Mapping[str, bytes] | None,
        partition: int | None,
        attempts: int,
        delay: float,
    ) -> Ack | None:
        """Store a message that is due after a delay, and return its ack.

        Cancelling may leave it stored.

        Raises:
            LiftbridgeError: it is not known to be stored.
        """
        tier = tier_for(delay, self._tiers)
        message = OutgoingMessage(
            self.streams[tier],
            value,
            key,
            {
                **(headers or {}),
                ATTEMPTS_HEADER: b"%d" % attempts,
                DUE_HEADER: b"%d" % ((time.time() + tier) * 1000 + 1),
            },
            partition=partition,
            ack_policy=AckPolicy.ALL,
            retry=Retry(),
        )
        return await (await self._submit(message))


class AcksStreams:
    """The acks of a queue with tiers: those of each stream in a stream of its own.

    Args:
        stream: the stores of the acks, by stream; the first is that of the queue.
    """

    def __init__(self, stores: Iterable[AcksStream]) -> None:
        self._stores = {store.stream: store for store in stores}
        self._tiers = list(self._stores)[1:]

    @property
    def unfinished(self) -> set[StreamPartition]:
        """See `AcksStore`."""
        return set().union(*(store.unfinished for store in self._stores.values()))

    async def fetch(
        self, cursor_id: str, stream: str, partition: int, timeout: float
    ) -> int | None:
        """See `AcksStore`. Tiers are read from their beginning."""
        found = await self._stores[stream].fetch(cursor_id, stream, partition, timeout)
        is_beginning = cursor_id.startswith(beginning_cursor(""))
        return 0 if found is None and is_beginning and stream in self._tiers else found

    async def locate(
        self, cursor_id: str, stream: str, partition: int, timeout: float
    ) -> LogPosition:
        """See `AcksStore`. A tier that was created again is read from its beginning, too."""
        found = await self._stores[stream].locate(cursor_id, stream, partition, timeout)
        return found._replace(former=None) if stream in self._tiers else found

    async def set(
        self, cursor_id: str, stream: str, partition: int, offset: int, timeout: float
    ) -> None:
        """See `AcksStore`."""
        await self._stores[stream].set(cursor_id, stream, partition, offset, timeout)

    async def prepare(self) -> None:
        """See `AcksStore`."""
        for store in self._stores.values():
            await store.prepare()

    async def claim(self, place: StreamPartition, first: int) -> Claim:
        """See `AcksStore`."""
        return await self._stores[place.stream].claim(place, first)

    async def save(
        self,
        place: StreamPartition,
        snapshot: Snapshot,
        acks: tuple[AckIntent, ...] = (),
        *,
        last: bool,
    ) -> None:
        """See `AcksStore`."""
        await self._stores[place.stream].save(place, snapshot, acks, last=last)

    async def destroy(self) -> None:
        """See `AcksStore`."""
        for store in self._stores.values():
            await store.destroy()
