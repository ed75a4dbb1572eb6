"""A synchronous client for what a test publishes and reads beside Spark."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar

from liftbridge_aio import (
    Client,
    Message,
    Record,
    StartAt,
    StopAt,
    StreamOptions,
)
from support.loop_thread import BOUND, Closing, LoopThread
from support.transaction_logs import publish_records

T = TypeVar("T")


def numbers(first: int, last: int) -> list[bytes]:
    """Make values."""
    return [b"%d" % number for number in range(first, last)]


class LogClient(Closing):
    """A client of one server, for threads without an event loop."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._loop = LoopThread()
        self._client = self._loop.run(_connected(address))

    def close(self) -> None:
        self._loop.run(self._client.aclose())
        self._loop.close()

    def create(self, stream: str, partitions: int = 1, **options: Any) -> str:
        """Create a stream, with `StreamOptions` by keyword, and return its name."""
        self._loop.run(
            self._client.create_stream(
                stream, partitions=partitions, options=StreamOptions(**options)
            )
        )
        return stream

    def delete(self, stream: str) -> None:
        self._loop.run(self._client.delete_stream(stream))

    def publish(
        self, stream: str, records: Iterable[bytes | Record], partition: int | None = None
    ) -> list[int]:
        """Publish values or records, in order, and return their offsets."""
        prepared = [
            record if isinstance(record, Record) else Record(record, partition=partition)
            for record in records
        ]
        return self._loop.run(publish_records(self._client, stream, prepared))

    def read(self, stream: str, partition: int = 0, start: int | None = None) -> list[Message]:
        """Read what a partition holds now, from an offset or from its beginning."""
        return self._loop.run(self._read(stream, partition, start))

    def read_all(self, stream: str) -> list[Message]:
        """Read what a stream holds now, partition after partition."""
        return [
            message for number in self.partitions(stream) for message in self.read(stream, number)
        ]

    def committed(self, stream: str) -> list[Message]:
        """Read what is committed, partition after partition, each in the order of its commits."""
        numbers = self.partitions(stream)

        async def read(client: Client) -> list[Message]:
            found = []
            for number in numbers:
                reading = client.read(stream, partition=number, committed=True)
                found += [message async for message in reading]
            return found

        return self.run(read)

    def partitions(self, stream: str) -> list[int]:
        """The numbers of the partitions of a stream."""
        metadata = self._loop.run(self._client.fetch_metadata())
        return sorted(metadata.streams[stream].partitions)

    def ends(self, stream: str) -> dict[int, int]:
        """The offset after the last message of each partition."""
        return {
            number: max((message.offset + 1 for message in self.read(stream, number)), default=0)
            for number in self.partitions(stream)
        }

    def run(self, work: Callable[[Client], Coroutine[Any, Any, T]], timeout: float = BOUND) -> T:
        """Run what `work(client)` makes, for whatever is not here."""
        return self._loop.run(work(self._client), timeout)

    async def _read(self, stream: str, partition: int, start: int | None) -> list[Message]:
        begin = StartAt.earliest() if start is None else StartAt.offset(start)
        async with self._client.subscribe(
            stream, partition=partition, start=begin, stop=StopAt.latest()
        ) as messages:
            return [message async for message in messages]


async def _connected(address: str) -> Client:
    client = Client(address)
    await client.connect()
    return client
