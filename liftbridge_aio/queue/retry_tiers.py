"""Retry streams: messages wait in them for their next attempt, one stream per length of the wait.

All messages of a tier wait equally long, so they are due in the order of the log. The members of
the group read the retry streams like the stream of the queue.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from typing import Final
from urllib.parse import quote

from liftbridge_aio._core.absence import Incarnation
from liftbridge_aio._core.log_position import LogPosition
from liftbridge_aio._subscribe.committed_state import committed_state
from liftbridge_aio.errors import LiftbridgeError, NotFound, PartitionNotFound, StreamNotFound
from liftbridge_aio.groups.fenced_cursors import beginning_cursor
from liftbridge_aio.model import (
    Ack,
    AckPolicy,
    Message,
    OutgoingMessage,
    StreamPartition,
)
from liftbridge_aio.options import OWN_STREAM
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
from .plan import QueueClient

logger = logging.getLogger("liftbridge_aio.queue")

_KEPT: Final = 30 * 86_400.0
"""Seconds that a retry stream keeps a message after its wait, for times without members."""
_LOOK_INTERVAL: Final = 1.0
"""Seconds between two checks for restarted servers."""


def tier_stream(stream: str, group: str, tier: float) -> str:
    """Return the name of the retry stream of a group for waits of `tier` seconds."""
    return f"{stream}.retry.{quote(group, safe='').replace('.', '%2E')}.{tier:g}s"


class RetryTiers:
    """The retry streams of a queue.

    Args:
        stream: the stream of the queue.
        group: the id of the group.
        tiers: seconds, ascending.
        client: publishes messages and creates streams.
        timeout: seconds for each call.
    """

    def __init__(
        self,
        stream: str,
        group: str,
        tiers: tuple[float, ...],
        client: QueueClient,
        timeout: float,
    ) -> None:
        self.streams = {tier: tier_stream(stream, group, tier) for tier in tiers}
        self._stream = stream
        self._group = group
        self._tiers = tiers
        self._submit = client.submit
        self._administration = client.streams
        self._network = client.network
        self._timeout = timeout

    async def create(self) -> None:
        """Create missing streams, with the partitions of the queue's stream."""
        for tier in self._tiers:
            await self._create(tier)

    async def _create(self, tier: float) -> None:
        name, timeout = self.streams[tier], self._timeout
        found = (await self._network.metadata.stream(self._stream, timeout)).partitions
        await self._administration.create(
            name,
            name,
            partitions=len(found),
            replication_factor=max(1, min(len(each.replicas) for each in found.values())),
            group=None,
            options=replace(OWN_STREAM, retention_max_age=tier + _KEPT),
            exist_ok=True,
            timeout=timeout,
        )

    async def _recreate(self, tier: float) -> None:
        """Recreate a deleted stream; the members find it like any new stream of the group.

        The stored acks have the creation time of the former log, so they do not apply to it.
        """
        logger.warning("the retry stream %r was deleted, and is recreated", self.streams[tier])
        await self._create(tier)

    async def delete(self) -> None:
        """Delete all retry streams."""
        for name in self.streams.values():
            with suppress(NotFound):
                await self._administration.delete(name, self._timeout)

    async def keep_visible(self, assignment: Callable[[], Iterable[StreamPartition]]) -> None:
        """Publish a filler where a restarted server hides messages of a retry stream.

        Only this queue publishes to the stream. Without fillers the messages would stay hidden
        until another message is moved to their partition.

        Args:
            assignment: returns the partitions of this member.
        """
        network = self._network
        names = frozenset(self.streams.values())
        checked: dict[StreamPartition, Incarnation] = {}
        while True:
            for place in assignment():
                leader = network.metadata.snapshot.leader(*place)
                if place.stream not in names or leader is None:
                    continue
                server = network.pool.incarnation(network.router.address_of(leader))
                if checked.get(place) != server:
                    with suppress(LiftbridgeError):  # retried after the next look
                        await self._make_visible(place)
                        checked[place] = server
            await asyncio.sleep(_LOOK_INTERVAL)

    async def _make_visible(self, place: StreamPartition) -> None:
        network, timeout = self._network, self._timeout

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
        """Copy a message to the retry stream of its delay."""
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

        A deleted stream is recreated. If a recreated stream has fewer partitions, messages of the
        missing ones are stored in partition 0.
        """
        tier = tier_for(delay, self._tiers)

        async def store(partition: int | None) -> Ack | None:
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

        try:
            return await store(partition)
        except PartitionNotFound:
            return await store(0)
        except StreamNotFound:
            await self._recreate(tier)
            return await store(partition)


class AcksStreams:
    """The acks of a queue with retry streams: each stream has a stream of acks.

    Args:
        stores: the stores of the acks; the first is that of the queue's own stream.
    """

    def __init__(self, stores: Iterable[AcksStream]) -> None:
        self._stores = {store.stream: store for store in stores}
        self._tiers = list(self._stores)[1:]

    @property
    def unfinished(self) -> set[StreamPartition]:
        """Implement `AcksStore`."""
        return set().union(*(store.unfinished for store in self._stores.values()))

    async def fetch(
        self, cursor_id: str, stream: str, partition: int, timeout: float
    ) -> int | None:
        """Implement `AcksStore`; retry streams begin at offset 0."""
        found = await self._stores[stream].fetch(cursor_id, stream, partition, timeout)
        is_beginning = cursor_id.startswith(beginning_cursor(""))
        return 0 if found is None and is_beginning and stream in self._tiers else found

    async def locate(
        self, cursor_id: str, stream: str, partition: int, timeout: float
    ) -> LogPosition:
        """Implement `AcksStore`; a recreated retry stream begins at offset 0, too."""
        found = await self._stores[stream].locate(cursor_id, stream, partition, timeout)
        return found._replace(former=None) if stream in self._tiers else found

    async def set(
        self, cursor_id: str, stream: str, partition: int, offset: int, timeout: float
    ) -> None:
        """Implement `AcksStore`."""
        await self._stores[stream].set(cursor_id, stream, partition, offset, timeout)

    async def prepare(self) -> None:
        """Implement `AcksStore`."""
        for store in self._stores.values():
            await store.prepare()

    async def claim(self, place: StreamPartition, first: int) -> Claim:
        """Implement `AcksStore`."""
        return await self._stores[place.stream].claim(place, first)

    async def save(
        self,
        place: StreamPartition,
        snapshot: Snapshot,
        acks: tuple[AckIntent, ...] = (),
        *,
        last: bool,
    ) -> None:
        """Implement `AcksStore`."""
        await self._stores[place.stream].save(place, snapshot, acks, last=last)

    async def unfinished_acks(self) -> tuple[AckIntent, ...]:
        """Implement `AcksStore`."""
        found = [await store.unfinished_acks() for store in self._stores.values()]
        return tuple(chain.from_iterable(found))

    async def destroy(self) -> None:
        """Implement `AcksStore`."""
        for store in self._stores.values():
            await store.destroy()
