"""Bodies of requests: whole, in time, and not too large."""

from __future__ import annotations

import asyncio
from typing import Final

from starlette.requests import ClientDisconnect, Request
from starlette.types import Message

from liftbridge_aio.durable_streams.core.requests import RequestRefused

_DISCARDED: Final = 64 << 20
_TIMEOUT_AT_END: Final = 3.0
"""Seconds that bodies still have when the gateway is told to end."""


class Body:
    """The body of a request.

    One that is too large is read on and thrown away, up to `_DISCARDED` bytes: most clients see no
    response before they have sent it.

    Args:
        request: the request.
        most: bytes that it may have.
    """

    def __init__(self, request: Request, most: int) -> None:
        self._request = request
        self._most = most
        self._parts: list[bytes] = []
        self._size = 0
        self._more = True

    @property
    def begun(self) -> bool:
        """True once anything of it was received."""
        return self._size > 0 or not self._more

    async def whole(self) -> bytes:
        """Return it. Cancelling ends the wait; another call goes on, and a later one repeats it.

        Raises:
            RequestRefused: it is too large.
            ClientDisconnect: the client has gone before it was complete.
        """
        while self._more and self._size <= self._most + _DISCARDED:
            message = await self._request.receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            part = message.get("body", b"")
            self._size += len(part)
            if self._size <= self._most:
                self._parts.append(part)
            self._more = message.get("more_body", False)
        if self._size > self._most:
            raise self.refused(413, f"a body has at most {self._most} bytes")
        return self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)

    def refused(self, status: int, text: str, **headers: str) -> RequestRefused:
        """Return the refusal, which ends the connection if the rest may still come on it."""
        if self._more and self._request.scope["http_version"].startswith("1"):
            headers["Connection"] = "close"
        return RequestRefused(status, text, headers)


class Bodies:
    """Reads bodies, each for a limited time.

    Args:
        timeout: seconds that a body may take.
    """

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._ending = False
        self._limits: set[asyncio.Timeout] = set()

    def end(self) -> None:
        """Leave a few seconds to those that are being read, and to those to come."""
        self._ending = True
        self._timeout = min(self._timeout, _TIMEOUT_AT_END)
        latest = asyncio.get_running_loop().time() + self._timeout
        for limit in self._limits:
            if not limit.expired() and (limit.when() or 0) > latest:
                limit.reschedule(latest)

    async def read(self, body: Body) -> bytes:
        """Return a body. Cancelling ends the wait.

        Raises:
            RequestRefused: it is too large, or has not come in time.
            ClientDisconnect: the client has gone before it was complete.
        """
        try:
            async with asyncio.timeout(self._timeout) as limit:
                self._limits.add(limit)
                return await body.whole()
        except TimeoutError:
            if self._ending:
                raise body.refused(
                    503, "the gateway ends, and the body has not come", **{"Retry-After": "1"}
                ) from None
            raise body.refused(
                408, f"the body has not come within {self._timeout:g} seconds"
            ) from None
        finally:
            self._limits.discard(limit)


class RepeatedBody:
    """Lets who authorizes a request read its body before who answers it.

    Args:
        bodies: what reads it.
        request: the request as it came.
        most: bytes that its body may have.
    """

    def __init__(self, bodies: Bodies, request: Request, most: int) -> None:
        self._bodies = bodies
        self._receive = request.receive
        self._body = Body(request, most)
        self._given = False
        self._repeated = False

    async def receive(self) -> Message:
        """Return the body, and then what follows it. Cancelling ends the wait, and loses nothing.

        Raises:
            RequestRefused: it is too large, or has not come in time.
            ClientDisconnect: the client has gone before it was complete.
        """
        if self._given:
            return await self._receive()
        message = await self._message()
        self._given = True
        return message

    async def receive_again(self) -> Message:
        """Return what `receive` did, or what it would have. Cancelling ends the wait.

        Raises:
            RequestRefused: the body is too large, or has not come in time.
            ClientDisconnect: the client has gone before it was complete.
        """
        if self._repeated or not self._body.begun:
            return await self._receive()
        self._repeated = True
        return await self._message()

    async def _message(self) -> Message:
        body = await self._bodies.read(self._body)
        return {"type": "http.request", "body": body, "more_body": False}
