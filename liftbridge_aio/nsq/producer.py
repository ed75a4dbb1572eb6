"""`Producer`: publishes to one nsqd, and connects again when it was lost."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self

from liftbridge_aio.errors import InvalidRequest

from .connection import NsqConnection
from .core import protocol
from .errors import NotConnected, NsqError

_MAX_FRAME: Final = 2**20


class Producer:
    """Publishes to an nsqd.

        async with nsq.Producer("127.0.0.1:4150") as producer:
            await producer.publish("orders", b"…")

    Args:
        address: `host:port`; the default port is 4150.
        timeout: seconds for connecting and for each publish.
    """

    def __init__(self, address: str, *, timeout: float = 10.0) -> None:
        self._address = address
        self._timeout = timeout
        self._connection: NsqConnection | None = None
        self._reading: asyncio.Task[None] | None = None
        self._tasks = asyncio.TaskGroup()
        self._connecting = asyncio.Lock()

    async def __aenter__(self) -> Self:
        """Connect. Cancelling closes it."""
        await self._tasks.__aenter__()
        try:
            await self._connected()
        except BaseException as error:
            await self._tasks.__aexit__(type(error), error, error.__traceback__)
            raise
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close; publishes whose response has not come fail with `NotConnected`."""
        if self._reading is not None:
            self._reading.cancel()
        if self._connection is not None:
            self._connection.close()
        await self._tasks.__aexit__(exc_type, exc, traceback)

    async def publish(self, topic: str, body: bytes) -> None:
        """Publish a message; nsqd has it when this returns.

        Cancelling after it was sent leaves it published.

        Raises:
            BadName: of the topic.
            InvalidRequest: the body is empty, which nsqd refuses.
            NotConnected: no connection, or it broke before the response; then it may be stored.
            CommandRefused: nsqd refuses it.
        """
        await self._request(protocol.pub(topic, _checked(body)))

    async def publish_many(self, topic: str, bodies: Sequence[bytes]) -> None:
        """Publish several messages in one command, checked as a whole.

        If nsqd fails midway, a part of them may be stored. Cancelling and errors: as `publish`.
        """
        if bodies:
            await self._request(protocol.mpub(topic, map(_checked, bodies)))

    async def publish_delayed(self, topic: str, body: bytes, delay: float) -> None:
        """Publish a message that is delivered after `delay` seconds at the earliest.

        Nsqd keeps the delay in memory: a restart delivers early. Cancelling and errors: as
        `publish`.
        """
        if delay < 0:
            message = "a delay must not be negative"
            raise InvalidRequest(message)
        await self._request(protocol.dpub(topic, round(delay * 1000), _checked(body)))

    async def _request(self, command: bytes) -> None:
        try:
            async with asyncio.timeout(self._timeout):
                connection = await self._connected()
                answered = connection.request(command)
                await connection.drain()
                await answered
        except TimeoutError as error:
            text = f"nsqd at {self._address} did not answer within {self._timeout:g} s"
            raise NotConnected(text) from error

    async def _connected(self) -> NsqConnection:
        async with self._connecting:
            if self._connection is None:
                connection = NsqConnection(
                    self._address, {}, _ignore, _ignore, max_frame_bytes=_MAX_FRAME
                )
                await connection.open(self._timeout)
                self._connection = connection
                self._reading = self._tasks.create_task(self._read(connection))
            return self._connection

    async def _read(self, connection: NsqConnection) -> None:
        error: NsqError | None = None
        try:
            await connection.read()
        except NsqError as lost:
            error = lost
        finally:
            connection.close(error)
            if self._connection is connection:
                self._connection = None


def _checked(body: bytes) -> bytes:
    if not body:
        message = "nsqd refuses messages without a body"
        raise InvalidRequest(message)
    return body


def _ignore(_: object) -> None:
    """Ignore a frame that producers do not get."""
