"""The client of a web service: connected when the service starts, drained when it ends."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from types import FrameType

from liftbridge_aio._client.client import Client
from liftbridge_aio._client.server_url import parse_servers
from liftbridge_aio.options import ClientOptions, Duration


@dataclass(frozen=True, slots=True)
class Service:
    """The client of a running web application, and its shutdown event."""

    client: Client
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the shutdown begins: endless responses must end now."""


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


_Handler = Callable[[int, FrameType | None], object]


@contextmanager
def on_stop_signals(notice: Callable[[], object]) -> Iterator[None]:
    """Call `notice` at SIGTERM and SIGINT, before the handlers that are installed.

    A server that shuts down waits for its responses without notifying them: an endless response
    would block it for ever. Signals without a handler are left unchanged, as are all outside the
    main thread, which receives none.

    Args:
        notice: called in the event loop.
    """
    loop = asyncio.get_running_loop()
    installed: dict[signal.Signals, tuple[_Handler, _Handler]] = {}

    def chained(handler: _Handler) -> _Handler:
        def handle(number: int, frame: FrameType | None) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(notice)
            handler(number, frame)

        return handle

    for number in (signal.SIGTERM, signal.SIGINT):
        handler = signal.getsignal(number)
        if not callable(handler):
            continue
        try:
            signal.signal(number, ours := chained(handler))
        except ValueError:  # not the main thread
            break
        installed[number] = ours, handler
    try:
        yield
    finally:
        for number, (ours, handler) in installed.items():
            if signal.getsignal(number) is ours:  # otherwise another handler has replaced it
                signal.signal(number, handler)
