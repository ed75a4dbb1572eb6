"""The connection to NATS that a client uses, and the one queue of all that it sends."""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from liftbridge_aio.errors import ConnectionFailed
from liftbridge_aio.nats.library import Msg, NatsConnection, Subscription, errors
from liftbridge_aio.nats.link import LinkState, NatsLink

_LOOK_INTERVAL: Final = 0.05
"""Seconds between looks whether a lost connection is back: whoever owns it has the callbacks."""
_MOST_AT_ONCE: Final = 512
"""After so many messages others have their turn."""
_NO_RESPONDERS: Final = "503"
_NOT_PERMITTED: Final = re.compile(r"permissions violation for (publish|subscription) to \"(.+?)\"")


class Outgoing(Protocol):
    """What waits to be sent, and is made into bytes when its turn comes."""

    def prepare(self) -> tuple[str, bytes, str] | None:
        """Return subject, payload and reply subject; None if it is not to be sent any more."""

    def failed(self, error: Exception) -> None:
        """Take the error of nats-py, which did not send it."""


class NoResponders(Exception):
    """Nobody listens on the subject of a request."""


class NotPermitted(Exception):
    """NATS does not let this user publish or subscribe to a subject."""


class StreamingLink:
    """A connection to NATS: sends in order, never while it is lost, and never makes users wait."""

    def __init__(
        self, connection: NatsConnection | Sequence[str], arguments: Mapping[str, Any]
    ) -> None:
        self._nats = NatsLink(connection, arguments)
        self._queue: deque[Outgoing] = deque()
        self._filled = asyncio.Event()
        self.paused = False
        """True while nothing is to be sent from the queue."""

    @property
    def is_up(self) -> bool:
        """True if something can be sent now."""
        return self._nats.state is LinkState.UP

    @property
    def is_over(self) -> bool:
        """True if the connection is closed."""
        return self._nats.state is LinkState.OVER

    @property
    def reconnects(self) -> int:
        """Number of reconnects."""
        return self._nats.reconnects

    @property
    def outage(self) -> str:
        """Return why nothing can be sent, while `is_up` is False."""
        return self._nats.outage

    def check(self) -> None:
        """Refuse to send over a connection that is closed; see `NatsLink.check`."""
        self._nats.check()

    def new_inbox(self) -> str:
        """Return a subject that nobody else uses."""
        return self._nats.connection.new_inbox()

    async def open(self, timeout: float) -> None:
        """Connect, unless the connection was given; see `NatsLink.open`."""
        await self._nats.open(timeout)

    async def close(self, timeout: float) -> None:
        """Release the connection; see `NatsLink.close`."""
        await self._nats.close(timeout)

    # Sending

    def send(self, outgoing: Outgoing) -> None:
        """Append to the queue."""
        self._queue.append(outgoing)
        self._filled.set()

    def resume(self) -> None:
        """Send from the queue again."""
        self.paused = False
        self._filled.set()

    async def run(self) -> None:
        """Send what is in the queue, until cancelled."""
        while True:
            await self._filled.wait()
            for _ in range(_MOST_AT_ONCE):
                if not self._queue or self.paused or not self.is_up:
                    break
                await self._send_next()
            if not self._queue or self.paused:
                self._filled.clear()
            else:
                await asyncio.sleep(0 if self.is_up else _LOOK_INTERVAL)

    async def _send_next(self) -> None:
        outgoing = self._queue.popleft()
        prepared = outgoing.prepare()
        if prepared is None:
            return
        subject, payload, reply = prepared
        try:
            # Whatever it refuses, it refuses before it waits.
            await self._nats.connection.publish(subject, payload, reply)
        except Exception as error:  # noqa: BLE001 - whoever waits for it hears of it
            outgoing.failed(error)

    # Receiving

    async def listen(self, subject: str, callback: Callable[[Msg], None]) -> Subscription:
        """Subscribe to a subject. What comes is never dropped, so somebody else must bound it.

        Raises:
            ConnectionFailed: the connection is closed.
        """

        async def receive(message: Msg) -> None:
            callback(message)

        try:
            return await self._nats.connection.subscribe(
                subject, cb=receive, pending_msgs_limit=-1, pending_bytes_limit=-1
            )
        except errors.Error as error:
            text = f"{subject} cannot be subscribed to: {error!r}"
            raise ConnectionFailed(text) from error

    async def forget(self, *subscriptions: Subscription) -> None:
        """End subscriptions; does nothing to those that have ended."""
        for each in subscriptions:
            try:
                await each.unsubscribe()
            except errors.Error:
                continue  # it, or the connection, is closed

    async def request(self, subject: str, payload: bytes, timeout: float) -> bytes:
        """Send a request and return the payload of the reply.

        Raises:
            NoResponders: nobody listens on the subject.
            TimeoutError: no reply in time.
            ConnectionFailed: the connection is closed or lost.
        """
        self.check()
        if not self.is_up:
            raise ConnectionFailed(self.outage)
        try:
            reply = await self._nats.connection.request(subject, payload, timeout=timeout)
        except errors.NoRespondersError as error:
            raise NoResponders(subject) from error
        except errors.TimeoutError:
            raise TimeoutError(subject) from None
        except errors.Error as error:
            text = f"the request could not be sent: {error!r}"
            raise ConnectionFailed(text) from error
        return reply.data


def is_no_responders(message: Msg) -> bool:
    """Return True if NATS says by this message that nobody listens on the subject of a request."""
    return message.headers is not None and message.headers.get("Status") == _NO_RESPONDERS


def not_permitted(error: Exception) -> tuple[bool, str] | None:
    """Return which subject, in lower case, an error of NATS is about; None for other errors.

    Returns:
        True for publishing and False for subscribing, and the subject.
    """
    found = _NOT_PERMITTED.search(str(error).lower())
    return (found[1] == "publish", found[2]) if found else None
