"""The streams of a gateway: created, deleted, expired, and their logs cleaned up."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from types import TracebackType
from typing import Final, Self, TypeVarTuple, Unpack

from liftbridge_aio._client.client import Client
from liftbridge_aio._runtime.supervisor import Supervisor
from liftbridge_aio.durable_streams.core.registry import Entry
from liftbridge_aio.errors import LiftbridgeError, NotFound
from liftbridge_aio.options import OWN_STREAM, StreamOptions

from .creation import Overtaken, StreamCreation
from .hosted_logs import HostedLogs
from .options import GatewayOptions
from .registry_log import RegistryLog
from .snapshots import Snapshots

logger = logging.getLogger("liftbridge_aio.durable_streams")

Ts = TypeVarTuple("Ts")

PREFIX: Final = "/v1/stream/"
"""The beginning of the paths of streams."""
_REGISTRY: Final = replace(OWN_STREAM, compact_enabled=True)
"""Settings of the registry: the newest message of each key suffices."""
_SWEEP_INTERVAL: Final = 0.25
"""Seconds between looks for what is to be registered, removed or closed."""
_WATCH_INTERVAL: Final = 1.0
"""Seconds between looks if servers answer, and if the registry is there."""
_STOP_TIMEOUT: Final = 2.0


class Streams:
    """All streams of a gateway.

    An async context manager; on exit nothing is left running. The client stays open.

    Args:
        client: connected to Liftbridge.
        options: settings of the gateway.
    """

    def __init__(self, client: Client, options: GatewayOptions) -> None:
        self.options = options
        self.client = client
        self.reachable = True
        """False once it is logged that servers do not answer, until they do."""
        self.on_new_registry: list[Callable[[], Awaitable[object]]] = []
        """Registrations to repeat once another registry is read, which lacks them."""
        self._supervisor = Supervisor("durable-streams", "the gateway")
        self.registry = RegistryLog(client, self._supervisor, options.registry)
        """The registry of all streams."""
        self._snapshots = Snapshots(self.registry, options.stream)
        self.logs = HostedLogs(client, self._supervisor, options, self._snapshots.newest)
        """Their logs."""
        self.creation = StreamCreation(
            self.registry, self.logs, options.registry, self._create_stream_log, self._drop_log
        )

    async def __aenter__(self) -> Self:
        """Create the registry if there is none, and read it. Cancelling leaves nothing running.

        Raises:
            LiftbridgeError: it could not be created or read.
        """
        await self._create_registry()
        await self._supervisor.start()
        try:
            await self.registry.open()
            self._supervisor.spawn(self._watch_often, name="watch")
            self._supervisor.spawn(self._sweep_often, name="sweep")
        except BaseException:
            await self._supervisor.stop(_STOP_TIMEOUT)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        """Store what logs may lose, and follow nothing any more. Cancelling skips the former."""
        try:
            with suppress(LiftbridgeError, TimeoutError):
                async with asyncio.timeout(_STOP_TIMEOUT):
                    await self._snapshots.save(self.logs, all_due=True)
        finally:
            await self._supervisor.stop(_STOP_TIMEOUT)

    async def _create_registry(self) -> None:
        registry = replace(_REGISTRY, min_isr=self.options.stream.min_isr)
        await self._create_log(self.options.registry, registry, exist_ok=True)

    async def _create_log(self, name: str, options: StreamOptions, *, exist_ok: bool) -> None:
        await self.client.create_stream(
            name,
            replication_factor=self.options.replication_factor,
            options=replace(options, optimistic_concurrency_control=True),
            exist_ok=exist_ok,
        )

    async def _create_stream_log(self, name: str) -> None:
        await self._create_log(name, self.options.stream, exist_ok=False)

    def spawn(
        self, function: Callable[[Unpack[Ts]], Awaitable[None]], *args: *Ts, name: str
    ) -> None:
        """Run `function(*args)` in a task that ends with the streams.

        Raises:
            ClientClosed: they have ended.
        """
        self._supervisor.spawn(function, *args, name=name)

    async def delete(self, path: str) -> None:
        """Delete a stream. What forks need of it stays. Cancelling leaves it open if it is deleted.

        Raises:
            RequestRefused: there is none.
            LiftbridgeError: it could not be deleted.
        """
        entry = await self.registry.find(path)
        await self.registry.change(path, lambda: replace(self.registry.active(path), deleted=True))
        self.logs.wake(entry.log)

    async def _watch_often(self) -> None:
        while True:
            await asyncio.sleep(_WATCH_INTERVAL)
            try:
                await self._watch()
            except LiftbridgeError as error:
                if self.reachable:
                    self.reachable = False
                    logger.error("Liftbridge does not answer, so requests are refused: %s", error)  # noqa: TRY400 - no fault of ours
                continue
            if not self.reachable:
                self.reachable = True
                logger.warning("Liftbridge answers again")

    async def _watch(self) -> None:
        """Read the registry again if it is another one, and create it anew if it is gone."""
        try:
            if await self.registry.is_the_same():
                return
        except NotFound:
            await self._create_registry()
            logger.error(  # noqa: TRY400 - no fault of ours
                "the registry %s was gone from Liftbridge, and all streams with it;"
                " it is created anew",
                self.registry.name,
            )
        await self.registry.open()
        entries = self.registry.registry.entries.values()
        self.logs.keep(
            {log for each in entries for log in (each.log, *(part.log for part in each.ancestors))}
        )
        for renew in self.on_new_registry:
            await renew()

    async def _sweep_often(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_INTERVAL)
            try:
                await self._sweep()
            except LiftbridgeError as error:
                if self.reachable:
                    logger.warning("streams could not be cleaned up yet: %s", error)

    async def _sweep(self) -> None:
        self.logs.close_idle(self._snapshots.lacks)
        now = time.time()
        for path, entry in self.registry.registry.touched(now):
            await self._change_same(path, entry, entry)
        for path, entry in self.registry.registry.overdue(now):
            await self.registry.look_at_log(path)
            await self._change_same(path, entry, replace(entry, deleted=True), expired=True)
            self.logs.wake(entry.log)
        for path, entry in self.registry.registry.unneeded(now):
            await self._delete_log(entry.log)
            await self._change_same(path, entry, None)
        await self._snapshots.save(self.logs)

    async def _change_same(
        self, path: str, entry: Entry, to: Entry | None, *, expired: bool = False
    ) -> None:
        """Register a change of a stream, unless it is another stream by now, or was touched."""

        def decide() -> Entry | None:
            known = self.registry.registry.entries.get(path)
            if known is None or known.incarnation != entry.incarnation:
                raise Overtaken
            if known.deleted != entry.deleted:
                raise Overtaken
            if expired and not self.registry.registry.expired(known, time.time()):
                raise Overtaken
            return to and replace(to, touched=max(to.touched, known.touched))

        with suppress(Overtaken):
            await self.registry.change(path, decide)

    async def _delete_log(self, log: str) -> None:
        self.logs.forget(log)
        with suppress(NotFound):
            await self.client.delete_stream(log)
        await self._snapshots.remove(log)

    def _drop_log(self, log: str) -> None:
        self.logs.forget(log)
        with suppress(LiftbridgeError):
            self._supervisor.spawn(self._delete_log, log, name=f"delete:{log}")
