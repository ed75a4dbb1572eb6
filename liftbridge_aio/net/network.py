"""The transport of one client as one value: connections, calls, metadata, tasks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from liftbridge_aio._core.status import error_from
from liftbridge_aio._runtime.supervisor import Supervisor
from liftbridge_aio.errors import LiftbridgeError, RequestTimeout
from liftbridge_aio.wire import health
from liftbridge_aio.wire.rpc import HEALTH_CHECK

from .broker_connection import HEALTH_SERVICE
from .connection_pool import ConnectionPool
from .metadata import MetadataCache
from .reporter import Reporter
from .router import Router

_GRACE: Final = 0.1
"""Seconds in which a call whose own time is up can say why it failed."""
_GROUPS_AT_ONCE: Final = 32


@dataclass(frozen=True, slots=True)
class Network:
    """The parts of one client that talk to servers."""

    supervisor: Supervisor
    reporter: Reporter
    pool: ConnectionPool
    router: Router
    metadata: MetadataCache
    not_found_timeout: float
    """Seconds for which "not found" is retried."""
    joins: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_GROUPS_AT_ONCE))
    """Bounds how many groups join at once: of hundreds that did, most would miss their timeouts."""
    lookups: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_GROUPS_AT_ONCE))
    """Bounds how many groups look for start positions at once, for the same reason."""

    async def ping(self, timeout: float) -> None:
        """Make a health check of any server. Cancelling abandons it.

        Raises:
            LiftbridgeError: no server answered in time.
        """
        request = health.HealthCheckRequest(service=HEALTH_SERVICE)
        await self.router.call_any(HEALTH_CHECK, request, timeout)

    @asynccontextmanager
    async def bounded(
        self,
        timeout: float,
        text: str,
        *,
        call: str,
        stream: str | None = None,
        partition: int | None = None,
        offset: int | None = None,
    ) -> AsyncIterator[Callable[[], float]]:
        """Bound an operation that makes several calls; yield a function that returns what is left.

        A call that is given these seconds gets a moment more, so that its own error says why it
        failed. Cancelling has the usual effect on what is bounded.

        Args:
            timeout: seconds for everything.
            text: what was not done, for the error; " within … s" follows.
            call: the procedure that the operation is about.
            stream: for the error.
            partition: for the error.
            offset: for the error.

        Raises:
            RequestTimeout: the time is up.
            ConnectionFailed: the time is up, and no known server can be used at all.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout

        def left() -> float:
            seconds = deadline - loop.time()
            if seconds <= 0:
                raise TimeoutError
            return seconds

        try:
            async with asyncio.timeout_at(deadline + _GRACE):
                yield left
        except TimeoutError as error:
            if isinstance(error, LiftbridgeError) or loop.time() < deadline:
                raise
            unusable = self.router.unusable
            if unusable is not None:
                raise error_from(call, unusable, stream=stream, partition=partition) from error
            text = f"{text} within {timeout:g} s"
            if self.router.all_suspected:
                text += f": no server was reached ({', '.join(self.router.addresses())})"
            raise RequestTimeout(text, stream=stream, partition=partition, offset=offset) from None
