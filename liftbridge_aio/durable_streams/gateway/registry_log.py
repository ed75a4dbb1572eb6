"""The registry of all streams: a log of Liftbridge that every gateway follows and writes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace

from liftbridge_aio._client.client import Client
from liftbridge_aio.durable_streams.core.registry import Entry, Registry, Status
from liftbridge_aio.durable_streams.core.requests import RequestRefused
from liftbridge_aio.errors import IncorrectOffset, NotFound
from liftbridge_aio.net.supervisor import Supervisor

from .followed_log import FollowedLog


class RegistryLog:
    """The registry, as this gateway knows it, and changes of it.

    Args:
        client: reads and writes.
        supervisor: owns the task that follows.
        name: Liftbridge's name of the log.
    """

    # State, changed only in the event loop: `registry` by `_apply` and `find`.

    def __init__(self, client: Client, supervisor: Supervisor, name: str) -> None:
        self.registry = Registry()
        self._client = client
        self._supervisor = supervisor
        self._log = FollowedLog(client, supervisor, name, self._apply)
        self._takers: dict[str, Callable[[str, bytes], object]] = {}

    async def open(self) -> None:
        """Read the log, and follow it. Cancelling ends the wait.

        Raises:
            LiftbridgeError: it could not be read.
        """
        await self._log.open()

    def _apply(
        self, offset: int, key: bytes, value: bytes, _: Mapping[str, bytes], __: int
    ) -> None:
        name = key.decode()
        if name.startswith("/"):
            self.registry.apply(offset, name, value)
            return
        kind, colon, rest = name.partition(":")
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
        entry = self.registry.entries.get(path)
        if entry is None or entry.deleted or entry.ttl is None:
            return
        if self.registry.expired(entry, time.time()):
            log = FollowedLog(self._client, self._supervisor, entry.log, _ignore)
            with suppress(NotFound):
                self.registry.touch(entry, await log.newest_time())

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
        async with self._log.lock:
            while True:
                value = decide()
                try:
                    await self._log.append(value, {}, key.encode())
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
