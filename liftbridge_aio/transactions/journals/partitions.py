"""Keep journals in partitions of Liftbridge, a frame in each message."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Final, Protocol

from liftbridge_aio.errors import InvalidRequest
from liftbridge_aio.model import Ack, Message, StartAt, StopAt
from liftbridge_aio.transactions.core.framing import Decoder
from liftbridge_aio.transactions.core.mapping import Journal
from liftbridge_aio.transactions.errors import FramingError

_PARTITION: Final = re.compile(r"[0-9]{1,10}")


class PartitionClient(Protocol):
    """The parts of a client that are needed; `liftbridge_aio.Client` has them."""

    async def publish(self, stream: str, value: bytes, *, partition: int) -> Ack:
        """Publish a message and return its ack."""

    def subscribe(
        self, stream: str, *, partition: int, start: StartAt, stop: StopAt | None
    ) -> AbstractAsyncContextManager[AsyncIterator[Message]]:
        """Read a partition."""


class PartitionJournals:
    """Journals that are partitions: `orders` is partition 0 of a stream, `orders/3` another one.

    Offsets are those of messages: a frame ends one after its begin.
    """

    def __init__(self, client: PartitionClient) -> None:
        """Use a client, which somebody else opens and closes."""
        self._client = client
        self._locks: dict[str, asyncio.Lock] = {}

    async def append(self, journal: str, frame: Callable[[], bytes]) -> tuple[int, int]:
        """Append a frame, and return the offsets of its begin and end once it is stored.

        Appends to a journal are done one after the other.
        Cancelling abandons the wait for the ack.

        Args:
            journal: the name of the journal.
            frame: returns the bytes.

        Raises:
            LiftbridgeError: as for `Client.publish`. If the outcome is unknown, append the same
                frame again: readers recognise it.
        """
        stream, partition = _place(journal)
        async with self._locks.setdefault(journal, asyncio.Lock()):
            ack = await self._client.publish(stream, frame(), partition=partition)
        return ack.offset, ack.offset + 1

    def source(self, journal: Journal, *, follow: bool = False) -> PartitionSource:
        """Return what reads a journal.

        Args:
            journal: the journal.
            follow: True to wait for what comes, instead of ending where the log ends.

        Raises:
            InvalidRequest: the name is that of no partition.
        """
        return PartitionSource(self._client, journal, follow=follow)


class PartitionSource:
    """A journal in a partition."""

    def __init__(self, client: PartitionClient, journal: Journal, *, follow: bool) -> None:
        """Read a journal from a partition."""
        self.journal = journal
        self._client = client
        self._stream, self._partition = _place(journal.name)
        self._follow = follow

    async def frames(
        self, decoder: Decoder, begin: int, end: int | None
    ) -> AsyncIterator[tuple[int, int, bytes]]:
        """Return frames with the offsets of their begins and ends, in order.

        Raises:
            FramingError: a message is not one frame.
            LiftbridgeError: as for reading a subscription.
        """
        stop = None if self._follow else StopAt.latest()
        if end is not None:
            stop = StopAt.offset(end - 1)
        async with self._client.subscribe(
            self._stream, partition=self._partition, start=StartAt.offset(begin), stop=stop
        ) as messages:
            async for message in messages:
                decoder.feed(message.value or b"")
                frame = decoder.next_frame()
                if frame != message.value:
                    raise FramingError(
                        f"the message at offset {message.offset} of {self.journal.name} is no frame"
                        f" of {self.journal.content_type}"
                    )
                yield message.offset, message.offset + 1, frame


def _place(journal: str) -> tuple[str, int]:
    stream, _, partition = journal.partition("/")
    if not stream or (partition and _PARTITION.fullmatch(partition) is None):
        raise InvalidRequest(f"a journal is a stream, or a stream/partition, not {journal!r}")
    return stream, int(partition or 0)
