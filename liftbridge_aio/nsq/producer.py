"""`Producer`: publishes to one nsqd, and connects again when it was lost."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from types import TracebackType
from typing import Final, Self

from liftbridge_aio._core.arguments import INT32_MAX, check_bytes, several
from liftbridge_aio.errors import InvalidRequest
from liftbridge_aio.options import Duration, seconds

from .connection import NsqConnection, full_address
from .core import protocol
from .core.protocol import check_name
from .errors import Closed, NotConnected, NsqError
from .options import ConnectionOptions

_CLOSE: Final = 5.0
"""Seconds that closing waits for what is still to be sent."""
_KEPT_HEADS: Final = 1_000


class Producer:
    """Publishes to an nsqd.

        async with nsq.Producer("127.0.0.1:4150") as producer:
            await producer.publish("orders", b"3 rolls")

    After a lost connection the next publish connects again. Any number of tasks may publish at the
    same time; nothing is retried, as nsqd does not recognise duplicates.

    Args:
        address: `host:port`; the default port is 4150.
        timeout: seconds for each publish, including a new connection where one is needed.
        options: of the connection.

    Raises:
        InvalidRequest: an argument is invalid.
    """

    def __init__(
        self,
        address: str,
        *,
        timeout: Duration = 10.0,
        options: ConnectionOptions | None = None,
    ) -> None:
        self._address = full_address(address)
        self._timeout = seconds(timeout, "timeout")
        self._options = options or ConnectionOptions()
        self._connection: NsqConnection | None = None
        self._opening: NsqConnection | None = None
        """The connection that is being opened, which `aclose` ends too."""
        self._connecting = asyncio.Lock()
        self._is_entered = False
        self._heads: dict[str, bytes] = {}
        """The head of a publish by its topic."""

    async def __aenter__(self) -> Self:
        """Connect. Cancelling closes it.

        Raises:
            NotConnected: nsqd cannot be reached.
            CommandRefused: it refuses the options.
            ProtocolError: the server is no nsqd.
        """
        self._is_entered = True
        try:
            await self._connect()
        except BaseException:
            self._is_entered = False
            raise
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close it."""
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connection; publishes without a response fail with `OutcomeUnknown`.

        Publishes that wait for a connection fail with `Closed`. Idempotent. Takes at most 5
        seconds; cancelling closes it at once.
        """
        self._is_entered = False
        if self._opening is not None:
            self._opening.close()
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
            await connection.wait_closed(_CLOSE)

    async def publish(self, topic: str, body: bytes) -> None:
        """Publish a message; nsqd has it when this returns.

        Cancelling after it was sent leaves it published.

        Raises:
            InvalidRequest: the name is invalid, or the body empty, which nsqd refuses.
            NotConnected: no connection; it is not stored.
            OutcomeUnknown: no response came; it may be stored or not.
            CommandRefused: nsqd refuses it.
            Closed: the producer is closed.
        """
        head = self._heads.get(topic) if type(topic) is str else None
        if head is None:
            head = self._remember(topic)
        _check_body(body)
        await self._request(protocol.pub(head, body))

    def _remember(self, topic: str) -> bytes:
        """Check the name of a topic, and keep the head of its publishes."""
        if len(self._heads) >= _KEPT_HEADS:
            self._heads.clear()
        head = self._heads[check_name(topic, "topic")] = protocol.pub_head(topic)
        return head

    async def publish_many(self, topic: str, bodies: Iterable[bytes]) -> None:
        """Publish messages in one command; nsqd checks them all before it stores the first.

        If nsqd fails midway, a part of them may be stored. Cancelling and errors: as `publish`.
        """
        check_name(topic, "topic")
        found = several(bodies, "bodies are given as a list of bytes")
        for body in found:
            _check_body(body)
        if found:
            await self._request(protocol.mpub(topic, found))

    async def publish_delayed(self, topic: str, body: bytes, delay: Duration) -> None:
        """Publish a message that is delivered after `delay` seconds at the earliest.

        Nsqd keeps the delay in memory, so a restart delivers early. It refuses delays above its
        `--max-req-timeout`, an hour by default. Cancelling and errors: as `publish`.
        """
        check_name(topic, "topic")
        _check_body(body)
        milliseconds = seconds(delay, "delay") * 1000
        if milliseconds > INT32_MAX:
            raise InvalidRequest(f"a delay is at most {INT32_MAX // 1000} s, not {delay!r}")
        await self._request(protocol.dpub(topic, round(milliseconds), body))

    async def ping(self) -> None:
        """Connect if there is no connection, and send a command that has no response.

        Cancelling abandons the wait.

        Raises:
            NotConnected: nsqd cannot be reached.
        """
        connection = self._connection or await self._connect()
        connection.send(protocol.NOP)

    async def _request(self, command: bytes) -> None:
        connection = self._connection
        if connection is None or connection.error is not None:
            try:
                async with asyncio.timeout(self._timeout):
                    connection = await self._connect()
            except TimeoutError as error:
                raise NotConnected(
                    f"cannot connect to nsqd at {self._address} within {self._timeout:g} s"
                ) from error
        if connection.is_full:
            await connection.room()
        await connection.request(command, self._timeout)

    async def _connect(self) -> NsqConnection:
        async with self._connecting:
            self._check_entered()
            connection = self._connection
            if connection is None or connection.error is not None:
                connection = self._opening = NsqConnection(self._address, self._options)
                try:
                    await connection.open()
                except NsqError:
                    self._check_entered()  # closed meanwhile
                    raise
                finally:
                    self._opening = None
                if not self._is_entered:
                    connection.close()
                self._check_entered()
                self._connection = connection
            return connection

    def _check_entered(self) -> None:
        if not self._is_entered:
            raise Closed("the producer is closed, or was not entered")


def _check_body(body: bytes) -> None:
    check_bytes(body, "the body")
    if not body:
        raise InvalidRequest("nsqd refuses messages without a body")
