"""The client of a web service: connected when the service starts, drained when it ends."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from liftbridge_aio._client.client import Client
from liftbridge_aio._client.server_url import parse_servers
from liftbridge_aio.options import ClientOptions, Duration

logger = logging.getLogger("liftbridge_aio.integrations")


@dataclass(slots=True)
class Service:
    """The client of a running web application, and its shutdown event."""

    client: Client
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the shutdown begins: endless responses must end now."""
    failure: str | None = None
    """The error that ended the application's lifespan; set once, before the client is closed."""

    def fail(self, error: BaseException) -> None:
        """Record and log the error that ends the lifespan.

        Servers continue to serve after that, and not all of them log it.
        """
        self.failure = repr(error)
        if isinstance(error, Exception):
            logger.error("the lifespan failed, and closes its client: %s", self.failure)


@asynccontextmanager
async def running_service(
    *servers: str, options: ClientOptions | None, timeout: Duration | None
) -> AsyncIterator[Service]:
    """Connect; on exit wait for the acks of publishes in flight, as `Client.aclose` does.

    Args:
        servers: addresses; none: those found by `Client.from_env`.
        options: the options of the client; None: those of the environment, else the defaults.
        timeout: seconds to wait for servers that are starting; None is the client's call_timeout.

    Raises:
        LiftbridgeError: no server was ready in time, or the settings are invalid.
    """
    if servers:
        if options is None:
            found = parse_servers(servers)
            options = ClientOptions.from_env(found.over(os.environ), secure=bool(found.secure))
        client = Client(*servers, options=options)
    else:
        client = Client.from_env(options=options)
    service = Service(client)
    try:
        await client.wait_ready(timeout=timeout)
        yield service
    finally:
        service.stopping.set()
        await client.aclose()
