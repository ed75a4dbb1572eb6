"""The registry of all streams: a log of Liftbridge that every gateway follows and writes."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from liftbridge_aio._client.client import Client
from liftbridge_aio._runtime.supervisor import Supervisor
from liftbridge_aio.durable_streams.core.registry import Entry, Registry, Status
from liftbridge_aio.durable_streams.core.requests import RequestRefused
from liftbridge_aio.errors import IncorrectOffset, NotFound, StreamNotFound
from liftbridge_aio.options import timer_seconds

from .followed_log import FollowedLog

logger = logging.getLogger("liftbridge_aio.durable_streams")


class RegistryLog:
    """The registry, as this gateway knows it, and changes of it.

    Args:
        client: reads and writes.
        supervisor: owns the task that follows.
        name: Liftbridge's name of the log.
    """

    # State, changed only in the event loop: `registry` and `_recorded` by `_apply`, `registry` by
    # `find`, too, `_log` and `_created` by `open`.

    def __init__(self, client: Client, supervisor: Supervisor, name: str) -> None:
        self.registry = Registry()
        self.name = name
        self._created = 0
        """The time of its creation, in nanoseconds since 1970: another one is another log."""
        self._complete = False
        """True once it was read to its end."""
        self._recorded: set[str] = set()
        """The keys that `_takers` know of."""
        self._looks: dict[str, set[asyncio.Timeout]] = {}
        """Looks at logs, by path; a change of the stream ends them, as its log may be gone then."""
        self._client = client
        self._supervisor = supervisor
        self._log = FollowedLog(client, supervisor, name, self._apply)
        self._takers: dict[str, Callable[[str, bytes], object]] = {}

    async def open(self) -> None:
        """Forget what was known, read the log, and follow it. Cancelling ends the wait.

        Raises:
            LiftbridgeError: it could not be read.
        """
        created = await self._fetch_created()
        self._log.close()
        for path in list(self.registry.entries):
            self.registry.apply(-1, path, b"")
        for key in list(self._recorded):
            self._apply(-1, key.encode(), b"", {}, 0)
        self._log = FollowedLog(self._client, self._supervisor, self.name, self._apply)
        self._created, self._complete = created, False
        await self._log.open()
        self._complete = True

    @property
    def era(self) -> int:
        """The era of what is registered now; see `Entry.era`."""
        return self._created // 1000

    async def is_the_same(self) -> bool:
        """Return True if the log that is followed is there. Cancelling abandons the call.

        Raises:
            StreamNotFound: there is none, and that is certain.
            LiftbridgeError: no server answered.
        """
        same = await self._fetch_created() == self._created
        return same and self._complete and not self._log.failed

    async def _fetch_created(self) -> int:
        streams = (await self._client.fetch_metadata([self.name])).streams
        if self.name not in streams:
            options = self._client.options
            limits = options.call_timeout, options.not_found_timeout
            certain = await self._client.fetch_metadata(
                [self.name], expected=[self.name], timeout=sum(map(timer_seconds, limits))
            )
            streams = certain.streams
        if self.name not in streams:
            raise StreamNotFound("no server knows the registry", stream=self.name)
        return streams[self.name].creation_timestamp

    def _apply(
        self, offset: int, key: bytes, value: bytes, _: Mapping[str, bytes], __: int
    ) -> None:
        try:
            self._take(offset, key, value)
        except ValueError:
            # Whoever may publish to Liftbridge may publish this, and gateways must still start.
            logger.warning(
                "the message at offset %d of the registry %s is skipped, as no gateway wrote it",
                offset,
                self.name,
            )

    def _take(self, offset: int, key: bytes, value: bytes) -> None:
        name = key.decode()
        if name.startswith("/"):
            self.registry.apply(offset, name, value)
            for look in self._looks.pop(name, ()):
                look.reschedule(0.0)
            return
        kind, colon, rest = name.partition(":")
        (self._recorded.add if value else self._recorded.discard)(name)
        if (take := self._takers.get(kind + colon)) is not None:
            take(rest, value)

    def names(self) -> list[tuple[str, Entry]]:
        """Return the paths of all streams, sorted, with what is registered."""
        now = time.time()
        return [
            (path, entry)
            for path, entry in sorted(self.registry.entries.items())
            if self.registry.status(path, now)[0] is Status.ACTIVE
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
        now = time.time()
        self._log.check()
        status, entry = self.registry.status(path, now)
        if status is Status.MISSING:
            await self._log.catch_up()
        if status is not Status.ACTIVE or entry is None:
            await self.look_at_log(path)
            entry = self.active(path)
        if touch:
            self.registry.touch(entry, now)
            if self.registry.is_late(entry, now):
                await self._register_touch(path, entry)
        return entry

    async def look_at_log(self, path: str) -> None:
        """Prolong the life of a stream that seems to be over, if its log has a newer append.

        A gateway that was killed may have stored it without registering that the stream was
        touched. Cancelling ends the look.

        Raises:
            LiftbridgeError: the log could not be read.
        """
        while (entry := self._seems_over(path)) is not None:
            log = FollowedLog(self._client, self._supervisor, entry.log, _ignore)
            look = asyncio.timeout(None)
            looks = self._looks.setdefault(path, set())
            try:
                async with look:
                    looks.add(look)
                    self.registry.touch(entry, await log.newest_time())
                    return
            except NotFound:
                return
            except TimeoutError:
                if not look.expired():
                    raise
            finally:
                looks.discard(look)

    def _seems_over(self, path: str) -> Entry | None:
        """Return a stream that has expired, but for what its log may say; None if it has not."""
        entry = self.registry.entries.get(path)
        if entry is None or entry.deleted or entry.ttl is None:
            return None
        return entry if self.registry.expired(entry, time.time()) else None

    async def _register_touch(self, path: str, entry: Entry) -> None:
        """Register a read or write at once, unless it is another stream by now."""

        def decide() -> Entry:
            known = self.active(path)
            same = known.incarnation == entry.incarnation
            return replace(known, touched=time.time()) if same else known

        await self.change(path, decide)

    def active(self, path: str) -> Entry:
        """Return what is known here of a stream.

        Raises:
            RequestRefused: there is none.
        """
        status, entry = self.registry.status(path, time.time())
        if status is Status.DELETED:
            raise RequestRefused(410, f"the stream {path} is deleted")
        if status is Status.MISSING or entry is None:
            raise RequestRefused(404, f"there is no stream {path}")
        return entry

    async def change(self, path: str, decide: Callable[[], Entry | None]) -> None:
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
        log = self._log
        async with log.lock:
            while True:
                log.check()
                value = decide()
                try:
                    await log.append(value, {}, key.encode())
                except IncorrectOffset:
                    continue
                return

    def on_record(self, kind: str, take: Callable[[str, bytes], object]) -> None:
        """Call `take` for each message of the registry whose key begins with `kind`, a colon last.

        It gets the rest of the key, and the value.
        """
        self._takers[kind] = take


def _ignore(*_: object) -> None:
    """Take a message."""
