"""Creation of streams and forks: first the log, then the registration, which one gateway wins."""

from __future__ import annotations

import time
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import NamedTuple

from liftbridge_aio.durable_streams.core.protocol import (
    DEFAULT_CONTENT_TYPE,
    NOW,
    START,
    media_type,
)
from liftbridge_aio.durable_streams.core.registry import Entry, Fork, Status
from liftbridge_aio.durable_streams.core.requests import (
    Creation,
    ForkOf,
    RequestRefused,
    content_of,
    prefix_of,
)
from liftbridge_aio.durable_streams.core.segments import UnknownOffset
from liftbridge_aio.durable_streams.core.stream_log import Append

from .hosted_logs import HostedLogs
from .registry_log import RegistryLog


class Created(NamedTuple):
    """The outcome of a PUT."""

    new: bool
    entry: Entry


class Overtaken(Exception):
    """Another change of the same stream was first."""


class StreamCreation:
    """Creates streams.

    Args:
        registry: where they are registered.
        logs: the logs of all streams.
        prefix: what the names of logs begin with.
        create_log: creates a log in Liftbridge.
        drop_log: deletes a log that no stream needs, without waiting.
    """

    def __init__(
        self,
        registry: RegistryLog,
        logs: HostedLogs,
        prefix: str,
        create_log: Callable[[str], Awaitable[object]],
        drop_log: Callable[[str], object],
    ) -> None:
        self._registered = registry
        self._registry = registry.registry
        self._logs = logs
        self._prefix = prefix
        self._create_log = create_log
        self._drop = drop_log

    async def create(self, path: str, wanted: Creation, body: bytes) -> Created:
        """Create a stream, or find the one that is configured like it.

        Cancelling may leave it created.

        Raises:
            RequestRefused: there is another one, or the source of the fork does not do.
            LiftbridgeError: it could not be created.
        """
        if wanted.ttl == 0 or (wanted.expiry is not None and wanted.expiry <= time.time()):
            raise RequestRefused(
                400,
                "the stream would expire at once: Stream-TTL is 0, or Stream-Expires-At is past",
            )
        await self._registered.look_at_log(path)
        entry, prefix = await self._plan(path, wanted)
        if (known := await self._known(path, wanted, entry)) is not None:
            return Created(new=False, entry=known)
        content = content_of(body, entry.content_type, may_be_empty=True)
        await self._create_log(entry.log)
        try:
            hosted = self._logs.host(entry.log)
            await hosted.open(new=True)
            for append in _first_messages(prefix, content, closed=wanted.closed):
                await hosted.append(append)
            known = await self._register(path, wanted, entry)
        except BaseException:
            self._drop(entry.log)
            raise
        if known is not None:
            self._drop(entry.log)
            return Created(new=False, entry=known)
        status, created = self._registry.status(path, time.time())
        if status is not Status.ACTIVE or created is None:
            raise RequestRefused(
                410, "the stream was created, and has expired or was deleted since"
            )
        return Created(new=True, entry=created)

    async def _plan(self, path: str, wanted: Creation) -> tuple[Entry, bytes]:
        """Return the entry of a stream, and what of a message of its source it begins with."""
        entry = Entry(
            log=f"{self._prefix}.{uuid.uuid4().hex}",
            content_type=wanted.content_type or DEFAULT_CONTENT_TYPE,
            ttl=wanted.ttl,
            expires_at=wanted.expires_at,
            expiry=wanted.expiry,
            touched=time.time(),
            era=self._registered.era,
        )
        if wanted.fork is None:
            return entry, b""
        return await self._plan_fork(path, entry, wanted, wanted.fork)

    async def _plan_fork(
        self, path: str, entry: Entry, wanted: Creation, fork: ForkOf
    ) -> tuple[Entry, bytes]:
        await self._registered.look_at_log(fork.path)
        status, source = self._registry.status(fork.path, time.time())
        if status is Status.DELETED:
            raise RequestRefused(409, f"the stream {fork.path} is deleted")
        if status is Status.MISSING or source is None:
            raise RequestRefused(
                404, f"there is no stream {fork.path}: Stream-Forked-From is a path, /v1/stream/…"
            )
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
        tail = await self._logs.tail(source)
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
        found = await self._logs.read(source, position, 1, first=False)
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
        closed = (await self._logs.own(known)).state.closed
        if not known.matches(entry) or closed != wanted.closed:
            raise RequestRefused(409, f"the stream {path} exists, and is configured otherwise")
        return known

    async def _register(self, path: str, wanted: Creation, entry: Entry) -> Entry | None:
        """Register a stream; return the one that another gateway has registered first."""

        def decide() -> Entry:
            now = time.time()
            if self._registry.status(path, now)[0] is not Status.MISSING:
                raise Overtaken
            if entry.fork is not None:
                status, source = self._registry.status(entry.fork.path, now)
                if status is not Status.ACTIVE or source is None:
                    raise RequestRefused(404, f"there is no stream {entry.fork.path}")
                if source.incarnation != entry.fork.incarnation:
                    raise RequestRefused(409, f"the stream {entry.fork.path} was created anew")
            return entry

        replaced = self._registry.entries.get(path)
        try:
            await self._registered.change(path, decide)
        except Overtaken:
            return await self._known(path, wanted, entry)
        if replaced is not None and replaced.log != entry.log:
            self._drop(replaced.log)
        return None


def _first_messages(prefix: bytes, content: bytes, *, closed: bool) -> list[Append]:
    """Return the messages that a new stream begins with; the last one closes it, if it is to be."""
    values = [each for each in (prefix, content) if each]
    if closed and not values:
        values = [b""]
    last = len(values) - 1
    return [Append(each, closes=closed and n == last) for n, each in enumerate(values)]
