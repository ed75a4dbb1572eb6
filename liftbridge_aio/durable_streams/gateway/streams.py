"""The streams of a gateway: created, found, forked, expired and deleted through the registry."""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from types import TracebackType
from typing import Final, NamedTuple, Self, TypeVarTuple, Unpack

from liftbridge_aio._client.client import Client
from liftbridge_aio.durable_streams.core.native import message_json
from liftbridge_aio.durable_streams.core.protocol import (
    DEFAULT_CONTENT_TYPE,
    JSON_CONTENT_TYPE,
    NOW,
    START,
    media_type,
)
from liftbridge_aio.durable_streams.core.registry import Entry, Fork, Registry, Status
from liftbridge_aio.durable_streams.core.requests import (
    Creation,
    ForkOf,
    RequestRefused,
    content_of,
    prefix_of,
)
from liftbridge_aio.durable_streams.core.segments import UnknownOffset
from liftbridge_aio.durable_streams.core.stream_log import ID, Append
from liftbridge_aio.errors import IncorrectOffset, LiftbridgeError, NotFound
from liftbridge_aio.model import RESERVED_STREAMS
from liftbridge_aio.net.supervisor import Supervisor
from liftbridge_aio.options import StreamOptions, timer_seconds

from .followed_log import FollowedLog
from .hosted_stream import HostedStream, Removed
from .options import GatewayOptions

logger = logging.getLogger("liftbridge_aio.durable_streams")

Ts = TypeVarTuple("Ts")

PREFIX: Final = "/v1/stream/"
"""Where the paths of streams begin."""
_SWEEP_INTERVAL: Final = 0.25
"""Seconds between looks for what is to be registered, removed or closed."""
_STOP_TIMEOUT: Final = 2.0


class Created(NamedTuple):
    """What a PUT led to."""

    new: bool
    entry: Entry


class Found(NamedTuple):
    """Messages of a stream, and where the next ones are."""

    values: list[bytes]
    position: int
    """Behind the messages."""
    at_tail: bool
    """There are no more now."""
    closed: bool
    """There will be no more."""


class _Overtaken(Exception):
    """Another change of the same stream was first."""


class Streams:
    """All streams of a gateway.

    An async context manager; on exit nothing is left running. The client stays open.

    Args:
        client: connected to Liftbridge.
        options: settings of the gateway.
    """

    # State, changed only in the event loop: `_registry` by `_apply`, `_hosted` by `hosted` and
    # `_close_idle`.

    def __init__(self, client: Client, options: GatewayOptions) -> None:
        self.options = options
        self._client = client
        self._supervisor = Supervisor("durable-streams", "the gateway")
        self._registry = Registry()
        self._log = FollowedLog(client, self._supervisor, options.registry, self._apply)
        self._hosted: dict[str, HostedStream] = {}
        self._takers: dict[str, Callable[[str, bytes], object]] = {}
        self.ending = False
        """True once live reads are to end."""
        self._identity = uuid.uuid4().bytes[:8]
        self._numbers = itertools.count()

    async def __aenter__(self) -> Self:
        """Create the registry if there is none, and read it. Cancelling leaves nothing running.

        Raises:
            LiftbridgeError: it could not be created or read.
        """
        await self._create_log(self.options.registry, StreamOptions(), exist_ok=True)
        await self._supervisor.start()
        try:
            await self._log.open()
            self._supervisor.spawn(self._sweep_often, name="sweep")
        except BaseException:
            await self._supervisor.stop(_STOP_TIMEOUT)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        """Follow nothing any more. Cancelling takes effect afterwards."""
        await self._supervisor.stop(_STOP_TIMEOUT)

    async def _create_log(self, name: str, options: StreamOptions, *, exist_ok: bool) -> None:
        await self._client.create_stream(
            name,
            replication_factor=self.options.replication_factor,
            options=replace(options, optimistic_concurrency_control=True),
            exist_ok=exist_ok,
        )

    def _apply(
        self, offset: int, key: bytes, value: bytes, _: Mapping[str, bytes], __: int
    ) -> None:
        name = key.decode()
        if name.startswith("/"):
            self._registry.apply(offset, name, value)
            return
        kind, colon, rest = name.partition(":")
        if (take := self._takers.get(kind + colon)) is not None:
            take(rest, value)

    def end_reads(self) -> None:
        """End all reads that wait for messages."""
        self.ending = True
        for hosted in self._hosted.values():
            hosted.log.wake()

    def identity(self) -> bytes:
        """Return a header that no other message has."""
        return b"%b%x" % (self._identity, next(self._numbers))

    # The registry

    def names(self) -> list[tuple[str, Entry]]:
        """Return the paths of all streams, sorted, with what is registered."""
        now = time.time()
        return [
            (path, entry)
            for path, entry in sorted(self._registry.entries.items())
            if self._registry.status(path, now)[0] is Status.ACTIVE
        ]

    async def find(self, path: str, *, touch: bool = False) -> Entry:
        """Return what is registered of a stream; another gateway may have created it just now.

        Cancelling ends the wait.

        Args:
            path: its path.
            touch: True if it is read or written, which prolongs its life.

        Raises:
            RequestRefused: there is none.
            LiftbridgeError: the registry could not be read.
        """
        if self._registry.status(path, time.time())[0] is Status.MISSING:
            await self._log.catch_up()
        entry = self.active(path)
        if touch:
            self._registry.touch(entry, time.time())
        return entry

    def active(self, path: str) -> Entry:
        """Return what is known here of a stream.

        Raises:
            RequestRefused: there is none.
        """
        status, entry = self._registry.status(path, time.time())
        if status is Status.DELETED:
            raise RequestRefused(410, f"the stream {path} is deleted")
        if status is Status.MISSING or entry is None:
            raise RequestRefused(404, f"there is no stream {path}")
        return entry

    async def _change(self, path: str, decide: Callable[[], Entry | None]) -> None:
        """Register what `decide` returns for a path; None removes it.

        `decide` is called again if another gateway was first; what it raises ends the change.
        """

        def value() -> bytes:
            entry = decide()
            return b"" if entry is None else entry.to_json()

        await self.record(path, value)

    async def record(self, key: str, decide: Callable[[], bytes]) -> None:
        """Register what `decide` returns under a key; nothing removes it.

        `decide` is called again if another gateway was first; what it raises ends the change.
        Cancelling leaves it open if it is registered.

        Raises:
            LiftbridgeError: it could not be registered.
        """
        async with self._log.lock:
            while True:
                value = decide()
                try:
                    await self._log.append(value, {ID: self.identity()}, key.encode())
                except IncorrectOffset:
                    continue
                return

    def on_record(self, kind: str, take: Callable[[str, bytes], object]) -> None:
        """Call `take` for each message of the registry whose key begins with `kind`, a colon last.

        It gets the rest of the key, and the value.
        """
        self._takers[kind] = take

    def spawn(
        self, function: Callable[[Unpack[Ts]], Awaitable[None]], *args: *Ts, name: str
    ) -> None:
        """Run `function(*args)` in a task that ends with the streams.

        Raises:
            ClientClosed: they have ended.
        """
        self._supervisor.spawn(function, *args, name=name)

    # Liftbridge's own streams

    async def native_names(self) -> list[tuple[str, int]]:
        """Return the names of Liftbridge's other streams, with their numbers of partitions.

        Cancelling abandons the call.

        Raises:
            LiftbridgeError: no server answered.
        """
        metadata = await self._client.fetch_metadata()
        own = self.options.registry
        return [
            (name, len(stream.partitions))
            for name, stream in sorted(metadata.streams.items())
            if name not in RESERVED_STREAMS and name != own and not name.startswith(f"{own}.")
        ]

    async def native(self, name: str, partition: int) -> Entry:
        """Return a partition of one of Liftbridge's own streams, as if it were registered.

        Cancelling abandons the call.

        Raises:
            RequestRefused: there is none.
            LiftbridgeError: no server answered.
        """
        log = f"{name}/{partition}"
        stream = None
        if name not in RESERVED_STREAMS:
            stream = (await self._client.fetch_metadata([name])).streams.get(name)
        if stream is None or partition not in stream.partitions:
            raise RequestRefused(404, f"Liftbridge has no partition {partition} of {name}")
        created = stream.creation_timestamp // 1_000_000_000
        return Entry(log=log, content_type=JSON_CONTENT_TYPE, incarnation=created)

    # Creating and deleting

    async def create(self, path: str, wanted: Creation, body: bytes) -> Created:
        """Create a stream, or find the one that is configured like it.

        Cancelling may leave it created.

        Raises:
            RequestRefused: there is another one, or the source of the fork does not do.
            LiftbridgeError: it could not be created.
        """
        entry, prefix = await self._plan(path, wanted)
        if (known := await self._known(path, wanted, entry)) is not None:
            return Created(new=False, entry=known)
        content = content_of(body, entry.content_type, may_be_empty=True)
        await self._create_log(entry.log, self.options.stream, exist_ok=False)
        try:
            hosted = self._host(entry.log)
            await hosted.open(new=True)
            for append in _first_messages(prefix, content, closed=wanted.closed):
                await hosted.append(append, self.identity(), type_matches=True, expected=None)
            known = await self._register(path, wanted, entry)
        except BaseException:
            self._drop(entry.log)
            raise
        if known is not None:
            self._drop(entry.log)
            return Created(new=False, entry=known)
        return Created(new=True, entry=self.active(path))

    def _drop(self, log: str) -> None:
        """Delete the log of a stream that was not registered, without waiting."""
        self._forget(log)
        with suppress(LiftbridgeError):
            self._supervisor.spawn(self._delete_log, log, name=f"delete:{log}")

    async def _plan(self, path: str, wanted: Creation) -> tuple[Entry, bytes]:
        """Return the entry of a stream, and what of a message of its source it begins with."""
        entry = Entry(
            log=f"{self.options.registry}.{uuid.uuid4().hex}",
            content_type=wanted.content_type or DEFAULT_CONTENT_TYPE,
            ttl=wanted.ttl,
            expires_at=wanted.expires_at,
            expiry=wanted.expiry,
            touched=time.time(),
        )
        if wanted.fork is None:
            return entry, b""
        return await self._plan_fork(path, entry, wanted, wanted.fork)

    async def _plan_fork(
        self, path: str, entry: Entry, wanted: Creation, fork: ForkOf
    ) -> tuple[Entry, bytes]:
        status, source = self._registry.status(fork.path, time.time())
        if status is Status.DELETED:
            raise RequestRefused(409, f"the stream {fork.path} is deleted")
        if status is Status.MISSING or source is None:
            raise RequestRefused(404, f"there is no stream {fork.path}")
        kind = wanted.content_type or source.content_type
        if media_type(kind) != media_type(source.content_type):
            raise RequestRefused(409, "the content type is not the source's")
        position, prefix = await self._fork_at(path, source, fork)
        own_life = wanted.ttl is not None or wanted.expires_at is not None
        return replace(
            entry,
            content_type=kind,
            ttl=wanted.ttl if own_life else source.ttl,
            expires_at=wanted.expires_at if own_life else source.expires_at,
            expiry=wanted.expiry if own_life else source.expiry,
            fork=Fork(fork.path, source.incarnation, position, fork.sub_offset),
            ancestors=source.positions.until(position),
        ), prefix

    async def _fork_at(self, path: str, source: Entry, fork: ForkOf) -> tuple[int, bytes]:
        tail = await self.tail(source)
        if fork.offset is None:
            known = self._registry.entries.get(path)
            again = known is not None and known.fork is not None and known.fork.path == fork.path
            if again and known is not None and known.fork is not None:
                return known.fork.position, b""  # created without an offset before
            return tail, b""
        try:
            position = {START: 0, NOW: tail}.get(fork.offset)
            if position is None:
                position = source.positions.position(fork.offset)
        except UnknownOffset as error:
            raise RequestRefused(400, str(error)) from None
        if position is None or position > tail:
            raise RequestRefused(400, "Stream-Fork-Offset is no offset of the source")
        if not fork.sub_offset:
            return position, b""
        found = await self.read(source, position, 1, first=False)
        if not found.values:
            raise RequestRefused(400, "Stream-Fork-Sub-Offset lies beyond the source")
        return position, prefix_of(found.values[0], fork.sub_offset, source.content_type)

    async def _known(self, path: str, wanted: Creation, entry: Entry) -> Entry | None:
        """Return the stream that is there and configured as is wanted; None if there is none."""
        status, known = self._registry.status(path, time.time())
        if status is Status.DELETED:
            raise RequestRefused(409, f"the stream {path} is deleted, and forks still need it")
        if status is Status.MISSING or known is None:
            return None
        closed = (await self.hosted(known)).state.closed
        if not known.matches(entry) or closed != wanted.closed:
            raise RequestRefused(409, f"the stream {path} exists, and is configured otherwise")
        return known

    async def _register(self, path: str, wanted: Creation, entry: Entry) -> Entry | None:
        """Register a stream; return the one that another gateway has registered first."""

        def decide() -> Entry:
            now = time.time()
            if self._registry.status(path, now)[0] is not Status.MISSING:
                raise _Overtaken
            if entry.fork is not None:
                status, source = self._registry.status(entry.fork.path, now)
                if status is not Status.ACTIVE or source is None:
                    raise RequestRefused(404, f"there is no stream {entry.fork.path}")
                if source.incarnation != entry.fork.incarnation:
                    raise RequestRefused(409, f"the stream {entry.fork.path} was created anew")
            return entry

        replaced = self._registry.entries.get(path)
        try:
            await self._change(path, decide)
        except _Overtaken:
            return await self._known(path, wanted, entry)
        if replaced is not None and replaced.log != entry.log:
            self._drop(replaced.log)
        return None

    async def delete(self, path: str) -> None:
        """Delete a stream. What forks need of it stays. Cancelling leaves it open if it is deleted.

        Raises:
            RequestRefused: there is none.
            LiftbridgeError: it could not be deleted.
        """
        await self.find(path)
        await self._change(path, lambda: replace(self.active(path), deleted=True))

    # Reading and writing

    @contextmanager
    def using(self, entry: Entry) -> Iterator[None]:
        """Keep a stream followed while the block runs."""
        used = [self._host(log) for log in (entry.log, *(part.log for part in entry.ancestors))]
        for hosted in used:
            hosted.readers += 1
        try:
            yield
        finally:
            for hosted in used:
                hosted.readers -= 1
                hosted.used = asyncio.get_running_loop().time()

    async def hosted(self, entry: Entry) -> HostedStream:
        """Return the stream's own log, followed. Cancelling ends the wait."""
        return await self._opened(entry.log)

    async def _opened(self, log: str) -> HostedStream:
        hosted = self._host(log)
        if hosted.log.failed:
            self._forget(log)
            hosted = self._host(log)
        await hosted.open()
        return hosted

    def _host(self, log: str) -> HostedStream:
        hosted = self._hosted.get(log)
        if hosted is None:
            native, _, partition = log.rpartition("/")
            hosted = HostedStream(
                self._client,
                self._supervisor,
                native or log,
                self.options.max_cached_bytes,
                partition=int(partition) if native else 0,
                render=message_json if native else None,
            )
            hosted.used = asyncio.get_running_loop().time()
            self._hosted[log] = hosted
        return hosted

    async def tail(self, entry: Entry) -> int:
        """Return the position behind the last message of a stream. Cancelling ends the wait."""
        return entry.positions.start + (await self.hosted(entry)).state.tail

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
        own = await self.hosted(entry)
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

    async def wait(self, entry: Entry, position: int, most: int, *, first: bool) -> Found:
        """Return messages of a stream, or none if none comes until a long-poll ends.

        Arguments and errors are those of `read`. Cancelling ends the wait.
        """
        found = await self.read(entry, position, most, first=first)
        with suppress(TimeoutError):
            async with asyncio.timeout(timer_seconds(self.options.long_poll_timeout)):
                while not (found.values or found.closed or self.ending):
                    await (await self.hosted(entry)).log.changed()
                    found = await self.read(entry, position, most, first=first)
        return found

    # Keeping order

    async def _sweep_often(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_INTERVAL)
            try:
                await self._sweep()
            except LiftbridgeError as error:
                logger.warning("streams could not be cleaned up, which is tried again: %s", error)

    async def _sweep(self) -> None:
        self._close_idle()
        now = time.time()
        for path, entry in self._registry.touched(now):
            await self._change_same(path, entry, entry)
        for path, entry in self._registry.overdue(now):
            await self._change_same(path, entry, replace(entry, deleted=True), expired=True)
        for path, entry in self._registry.unneeded(now):
            await self._delete_log(entry.log)
            await self._change_same(path, entry, None)

    async def _change_same(
        self, path: str, entry: Entry, to: Entry | None, *, expired: bool = False
    ) -> None:
        """Register a change of a stream, unless it is another stream by now, or was touched."""

        def decide() -> Entry | None:
            known = self._registry.entries.get(path)
            if known is None or known.incarnation != entry.incarnation:
                raise _Overtaken
            if known.deleted != entry.deleted:
                raise _Overtaken
            if expired and not self._registry.expired(known, time.time()):
                raise _Overtaken
            return to

        with suppress(_Overtaken):
            await self._change(path, decide)

    async def _delete_log(self, log: str) -> None:
        self._forget(log)
        with suppress(NotFound):
            await self._client.delete_stream(log)

    def _forget(self, log: str) -> None:
        if (hosted := self._hosted.pop(log, None)) is not None:
            hosted.log.close()

    def _close_idle(self) -> None:
        oldest = asyncio.get_running_loop().time() - timer_seconds(self.options.idle_timeout)
        for log, hosted in list(self._hosted.items()):
            if not hosted.readers and hosted.used < oldest:
                self._forget(log)


def _first_messages(prefix: bytes, content: bytes, *, closed: bool) -> list[Append]:
    """Return the messages that a new stream begins with; the last one closes it, if it is to be."""
    values = [each for each in (prefix, content) if each]
    if closed and not values:
        values = [b""]
    last = len(values) - 1
    return [Append(each, closes=closed and n == last) for n, each in enumerate(values)]
