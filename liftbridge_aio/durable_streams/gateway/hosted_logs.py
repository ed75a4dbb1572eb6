"""The logs of streams that a gateway follows, and reads across them: a fork begins in others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial

from liftbridge_aio._client.client import Client
from liftbridge_aio._runtime.supervisor import Supervisor
from liftbridge_aio.durable_streams.core.native import NativeLog
from liftbridge_aio.durable_streams.core.registry import Entry
from liftbridge_aio.durable_streams.core.requests import RequestRefused
from liftbridge_aio.options import timer_seconds

from .hosted_stream import Found, HostedStream, Removed
from .options import GatewayOptions


class HostedLogs:
    """The logs that are followed; others are opened when they are needed.

    Args:
        client: reads and writes.
        supervisor: owns the tasks that follow.
        options: settings of the gateway.
        snapshots: the newest snapshot of each log that has one.
    """

    # State, changed only in the event loop: `_hosted` by `host` and `forget`.

    def __init__(
        self,
        client: Client,
        supervisor: Supervisor,
        options: GatewayOptions,
        snapshots: Mapping[str, bytes],
    ) -> None:
        self.ending = False
        """True once live reads are to end."""
        self._client = client
        self._supervisor = supervisor
        self._options = options
        self._snapshots = snapshots
        self._hosted: dict[str, HostedStream] = {}

    def end_reads(self) -> None:
        """End all reads that wait for messages."""
        self.ending = True
        for hosted in self._hosted.values():
            hosted.log.wake()

    @contextmanager
    def using(self, entry: Entry) -> Iterator[None]:
        """Keep a stream followed while the block runs."""
        used = [self.host(log) for log in (entry.log, *(part.log for part in entry.ancestors))]
        for hosted in used:
            hosted.readers += 1
        try:
            yield
        finally:
            for hosted in used:
                hosted.readers -= 1
                hosted.used = asyncio.get_running_loop().time()

    async def own(self, entry: Entry, *, to_append: bool = False) -> HostedStream:
        """Return the stream's own log, followed unless it is appended to. Cancelling ends the wait.

        Raises:
            LiftbridgeError: it could not be read.
        """
        return await self._opened(entry.log, to_append=to_append)

    async def _opened(self, log: str, *, to_append: bool = False) -> HostedStream:
        hosted = self.host(log)
        if hosted.log.failed:
            self.forget(log)
            hosted = self.host(log)
        await hosted.open(to_append=to_append)
        return hosted

    def host(self, log: str) -> HostedStream:
        """Return a log, which may not be open yet."""
        hosted = self._hosted.get(log)
        if hosted is None:
            native = NativeLog.parse(log)
            hosted = HostedStream(
                self._client,
                self._supervisor,
                log if native is None else native.stream,
                self._options.max_cached_bytes,
                partition=0 if native is None else native.partition,
                view=None if native is None else native.view,
                snapshot=partial(self._snapshots.get, log),
            )
            hosted.used = asyncio.get_running_loop().time()
            self._hosted[log] = hosted
        return hosted

    async def tail(self, entry: Entry) -> int:
        """Return the position behind the last message of a stream. Cancelling ends the wait."""
        return entry.positions.start + (await self.own(entry)).state.tail

    async def reached(self, entry: Entry, position: int) -> int:
        """Return a position, once all before it is applied that there is. Cancelling ends the wait.

        Raises:
            RequestRefused: it lies beyond the end of the stream.
            LiftbridgeError: the stream could not be read.
        """
        tail = await self.tail(entry)
        if position <= tail:
            return position
        log = (await self.own(entry)).log
        if not await log.holds(position - entry.positions.start):
            raise RequestRefused(400, "the offset lies beyond the end of the stream")
        native = NativeLog.parse(entry.log)
        if native is None or not native.committed:  # else a transaction may be open for long
            await log.catch_up()
        return min(position, await self.tail(entry))

    async def read(self, entry: Entry, position: int, most: int, *, first: bool) -> Found:
        """Return messages of a stream. Cancelling ends the read.

        Args:
            entry: the stream.
            position: where to begin.
            most: bytes after which to stop.
            first: True to begin with the oldest message that is there.

        Raises:
            RequestRefused: retention has removed the message at the position.
            LiftbridgeError: they could not be read.
        """
        positions = entry.positions
        own = await self.own(entry)
        values: list[bytes] = []
        while True:
            location = positions.locate(position)
            hosted = await self._opened(location.log)
            try:
                chunk = await hosted.read(location.offset, location.limit, most, first=first)
            except Removed:
                raise RequestRefused(410, "retention has removed what follows the offset") from None
            values += chunk.values
            most -= sum(map(len, chunk.values))
            position += chunk.next_offset - location.offset
            at_tail = location.limit is None and chunk.next_offset >= own.state.tail
            if at_tail or most <= 0:
                return Found(values, position, at_tail, at_tail and own.state.closed)

    async def wait(
        self, entry: Entry, position: int, most: int, check: Callable[[], object], *, first: bool
    ) -> Found:
        """Return messages of a stream, or none if none comes until a long-poll ends.

        Cancelling ends the wait. `check` is called after each change of the stream: what it raises
        ends the wait. The other arguments and errors are those of `read`.
        """
        found = await self.read(entry, position, most, first=first)
        with suppress(TimeoutError):
            async with asyncio.timeout(timer_seconds(self._options.long_poll_timeout)):
                while not (found.values or found.closed or self.ending):
                    await (await self.own(entry)).log.changed()
                    check()
                    found = await self.read(entry, position, most, first=first)
        return found

    def wake(self, log: str) -> None:
        """Let those who wait for messages of a log look if it is still there."""
        if (hosted := self._hosted.get(log)) is not None:
            hosted.log.wake()

    def forget(self, log: str) -> None:
        """Follow a log no more."""
        if (hosted := self._hosted.pop(log, None)) is not None:
            hosted.log.close()

    def keep(self, needed: Container[str]) -> None:
        """Follow no other logs any more than these, and those that are not the gateway's own."""
        for log in list(self._hosted):
            if log not in needed and NativeLog.parse(log) is None:
                self.forget(log)

    def owned(self) -> list[tuple[str, HostedStream]]:
        """Return the gateway's own logs that are open, by name."""
        return [(log, hosted) for log, hosted in self._hosted.items() if hosted.owned]

    def close_idle(self, needed: Callable[[HostedStream], bool]) -> None:
        """Follow those logs no more that nobody has used for a while, unless they are needed."""
        oldest = asyncio.get_running_loop().time() - timer_seconds(self._options.idle_timeout)
        for log, hosted in list(self._hosted.items()):
            if not hosted.readers and hosted.used < oldest and not needed(hosted):
                self.forget(log)
