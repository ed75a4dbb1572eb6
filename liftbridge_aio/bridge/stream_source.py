"""A stream of Liftbridge as the source of a bridge."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from typing import Final

from liftbridge_aio import Message, StartAt
from liftbridge_aio.errors import LiftbridgeError, SubscriptionLost
from liftbridge_aio.model import ACK_HEADER

from .ends import (
    BRIDGE_HEADERS,
    MARKER_HEADER,
    MAX_BATCH,
    PATH_HEADER,
    Copied,
    Origin,
    Plan,
    Record,
    bridge_headers,
    sources_of,
)
from .errors import SourceReset
from .streams import find_stream, log_identity, new_client

_COMMIT_INTERVAL: Final = 0.1
"""Seconds between commits of the position."""
_TICK: Final = 1.0
"""Seconds after which a source without messages says so."""


class StreamSource:
    """Reads all partitions of a stream; a cursor for each says how far it was copied.

    The cursors name the target: a stream of Liftbridge by its creation, others as the URL does.
    What a target knows itself counts more. A further cursor has the creation time of the source, as
    a stream that was deleted and created again has the same name and other messages.

    What has been in the target already is skipped.
    """

    # State, changed only by the task of the bridge: `_positions` have the offset of the last
    # message of each partition that is settled, `_ends` those at which to end.

    def __init__(self, plan: Plan) -> None:
        [self._stream] = plan.source.names
        self._target = plan.target
        self._cursor = ""
        self._other = b""
        self._is_mirror = False
        self._once = plan.once
        self._client = new_client(plan.source, plan.patience)
        self._stack = AsyncExitStack()
        self._batches: AsyncIterator[list[Message]] | None = None
        self._read: dict[int, int] = {}
        self._positions: dict[int, int] = {}
        self._committed: dict[int, int] = {}
        self._ends: dict[int, int] = {}
        self._created = 0
        self._commit_at = 0.0

    async def open(self) -> Origin:
        """Connect."""
        await self._client.connect()
        found = await find_stream(self._client, self._stream)
        self._created = found.creation_timestamp
        self._read = dict.fromkeys(found.partitions, -1)
        return Origin(log_identity(found), len(found.partitions))

    async def begin(self, copied: Copied) -> None:
        """Fetch the cursors, and begin after what was copied."""
        client, stream = self._client, self._stream
        self._is_mirror = bool(copied.identity)
        self._other = (copied.identity or str(self._target)).encode()
        self._cursor = f"bridge:{copied.identity or self._target.location}"
        stored = {
            partition: await client.fetch_cursor(self._cursor, stream, partition)
            for partition in self._read
        }
        await self._check_creation(is_new={*stored.values()} == {None})
        for partition, cursor in stored.items():
            state = await client.fetch_partition_metadata(stream, partition)
            committed = -1 if cursor is None else cursor
            known = copied.positions.get(partition)
            position = committed if known is None else known.number
            if position > state.newest_offset:
                raise SourceReset(
                    f"the stream was copied up to offset {position}, which it does not have",
                    stream=stream,
                    partition=partition,
                    offset=position,
                )
            self._read[partition] = self._positions[partition] = position
            self._committed[partition] = committed
            if self._once:
                self._ends[partition] = state.high_watermark

    async def _check_creation(self, *, is_new: bool) -> None:
        """Refuse a stream that was created again; note the creation of one that is new here."""
        cursor = f"{self._cursor}:created"
        if await self._client.fetch_cursor(cursor, self._stream, 0) == self._created:
            return
        if not is_new:
            raise SourceReset(
                "the stream was deleted and created again since it was copied", stream=self._stream
            )
        await self._client.set_cursor(cursor, self._stream, 0, self._created)

    async def _subscribe(self) -> AsyncIterator[list[Message]]:
        starts = {
            partition: StartAt.earliest() if read < 0 else StartAt.offset(read + 1)
            for partition, read in self._read.items()
        }
        subscription = self._client.subscribe(self._stream, start=starts)
        await self._stack.enter_async_context(subscription)
        self._batches = aiter(subscription.batches(MAX_BATCH))
        return self._batches

    async def next_batch(self) -> list[Record] | None:
        """Return the next messages; None at the end, if there is one."""
        if self._once and all(self._read[each] >= end for each, end in self._ends.items()):
            return None
        batches = self._batches or await self._subscribe()
        try:
            async with asyncio.timeout(_TICK):
                messages = await anext(batches)
        except LiftbridgeError:  # some are a TimeoutError as well
            raise
        except TimeoutError:
            await self._commit()
            return []
        except StopAsyncIteration:
            raise SubscriptionLost("the subscription has ended", stream=self._stream) from None
        for message in messages:
            self._read[message.partition] = message.offset
        records = [self._record(each) for each in messages if not self._is_skipped(each)]
        if not records:
            self._settle()
        return records

    def _is_skipped(self, message: Message) -> bool:
        return (
            self._other in sources_of(message)
            or MARKER_HEADER in bridge_headers(message)
            or (not self._is_mirror and ACK_HEADER in message.transaction_headers)
        )

    @staticmethod
    def _record(message: Message) -> Record:
        headers: Mapping[str, bytes] = message.headers
        if not BRIDGE_HEADERS.isdisjoint(headers):
            path = sources_of(message)
            headers = {name: each for name, each in headers.items() if name not in BRIDGE_HEADERS}
            if path:
                headers[PATH_HEADER] = b"\n".join(path)
        return Record(
            f"{message.partition}/{message.offset}".encode(),
            message.value,
            message.timestamp,
            message,
            partition=message.partition,
            key=message.key,
            headers=headers,
            transaction_headers=message.transaction_headers,
        )

    def _settle(self) -> None:
        self._positions.update(self._read)

    async def stored(self, records: list[Record]) -> None:  # noqa: ARG002 - all that was read
        """Move the positions, and commit them now and then."""
        self._settle()
        if asyncio.get_running_loop().time() >= self._commit_at:
            await self._commit()

    async def _commit(self) -> None:
        for partition, position in self._positions.items():
            if position > self._committed[partition]:
                await self._client.set_cursor(self._cursor, self._stream, partition, position)
                self._committed[partition] = position
        self._commit_at = asyncio.get_running_loop().time() + _COMMIT_INTERVAL

    async def lag(self) -> int | None:
        """Return how many offsets lie between the positions and the ends of the partitions."""
        ends = [
            (await self._client.fetch_partition_metadata(self._stream, each)).high_watermark
            for each in self._positions
        ]
        return sum(
            max(end - position, 0)
            for end, position in zip(ends, self._positions.values(), strict=True)
        )

    async def aclose(self) -> None:
        """Commit the positions, and disconnect."""
        try:
            await self._stack.aclose()
            if self._positions != self._committed:
                await self._commit()
        finally:
            await self._client.aclose()
