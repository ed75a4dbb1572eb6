"""A stream of Liftbridge as the target of messages that have no order."""

from __future__ import annotations

import asyncio
import zlib
from typing import Final

from liftbridge_aio.errors import InvalidRequest

from .core.known_ids import KnownIds
from .ends import Copied, Origin, Plan, Record
from .stream_target import StreamTarget

_WINDOW: Final = 4096
"""Messages at the end of each partition in which repeats are recognised."""


class WindowTarget(StreamTarget):
    """Stores what comes from NSQ, and skips what is among the last messages of the stream."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self._window = KnownIds(_WINDOW)

    async def open(self, origin: Origin) -> Copied:
        """Connect, create the stream if it is missing, and read its end."""
        await self.prepare(origin, None)
        for partition in range(self.partitions):
            await self.committed_end(partition)
            for message in await self.client.last(
                self.stream, n=_WINDOW, partition=partition, unpause=True
            ):
                identity = self.identity_of(message)
                if identity is not None:
                    self._window.add(identity)
        return Copied(self.identity)

    async def store(self, records: list[Record]) -> int:
        """Publish messages that the window does not have, and wait for all acks."""
        window = self._window
        new = {record.identity: record for record in records if record.identity not in window}
        futures = [await self.publish(record, self._place(record)) for record in new.values()]
        outcomes = await asyncio.gather(*futures, return_exceptions=True)
        for record, outcome in zip(new.values(), outcomes, strict=True):
            if isinstance(outcome, InvalidRequest):
                self.replace(record, outcome)
                await (await self.publish(record, self._place(record)))
            elif isinstance(outcome, BaseException):
                raise outcome
        for identity in new:
            window.add(identity)
        return len(records) - len(new)

    def _place(self, record: Record) -> int:
        return zlib.crc32(record.identity) % self.partitions
