"""Carry a trace id in a header of every message: an interceptor on both sides."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from uuid import uuid4

from liftbridge_aio import Client, ClientOptions, Interceptor, Message, OutgoingMessage, StartAt
from liftbridge_aio.interceptors import AckFuture

trace: ContextVar[str] = ContextVar("trace")


class Tracing(Interceptor):
    """Writes the current trace into what is published, and restores it around handlers."""

    async def publish(
        self, message: OutgoingMessage, send: Callable[[OutgoingMessage], Awaitable[AckFuture]]
    ) -> AckFuture:
        """Add the header."""
        message.headers = {**(message.headers or {}), "trace": trace.get().encode()}
        return await send(message)

    async def process(self, message: Message, handle: Callable[[Message], Awaitable[None]]) -> None:
        """Set the trace of the message while it is handled."""
        token = trace.set(message.headers["trace"].decode())
        try:
            await handle(message)
        finally:
            trace.reset(token)


async def main() -> None:
    """Publish one message, and handle it under its trace."""
    options = ClientOptions(interceptors=[Tracing()])
    async with Client.from_env(options=options) as client:
        await client.create_stream("traced", exist_ok=True)
        trace.set(published := uuid4().hex)
        await client.publish("traced", b"bread")

        async def handle(message: Message) -> None:
            print(message.value.decode(), "under the same trace:", trace.get() == published)
            await group.aclose()

        async with client.group("traced", ["traced"], start=StartAt.earliest()) as group:
            await group.run(handle)


asyncio.run(main())
