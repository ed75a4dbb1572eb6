"""Responses: bodies, refusals, and the headers that all of them have."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Mapping
from functools import cache
from typing import Final

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from liftbridge_aio._core.foreign_text import report_text
from liftbridge_aio.durable_streams.core import protocol
from liftbridge_aio.durable_streams.core.caching import next_cursor
from liftbridge_aio.durable_streams.core.requests import RequestRefused
from liftbridge_aio.errors import LiftbridgeError, NotFound, PublishOutcomeUnknown

from .access import Access

logger = logging.getLogger("liftbridge_aio.durable_streams")

NO_STORE: Final = {"Cache-Control": "no-store"}

_WITHOUT_LENGTH: Final = (204, 304)


class RequestHeaders(dict[str, str]):
    """Headers of a request; of several with one name the first. `get` takes names in any case.

    Args:
        scope: the request, whose names are in lower case.
    """

    def __init__(self, scope: Scope) -> None:
        super().__init__(
            (name.decode("latin-1"), value.decode("latin-1"))
            for name, value in reversed(scope["headers"])
        )

    def get(self, name: str, default: str | None = None) -> str | None:  # type: ignore[override]
        """Return the value of a header."""
        return super().get(name.lower(), default)


def joined(values: list[bytes], content_type: str) -> bytes:
    """Return messages as a body has them."""
    if protocol.is_json(content_type):
        return b"[" + b",".join(values) + b"]"
    return values[0] if len(values) == 1 else b"".join(values)


def cursor_after(given: str | None) -> str:
    """Return the cursor of a live response."""
    return next_cursor(time.time(), given, random.random())  # noqa: S311 - jitter


@cache
def _encoded_name(name: str) -> bytes:
    return name.lower().encode()


class Reply(Response):
    """A response whose body is there, with its headers as they are given.

    Args:
        status: the HTTP status.
        headers: its headers, but for its length.
        body: empty if it has none.
    """

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes = b"") -> None:
        # What the base class does besides costs as much as half of an append.
        self.status_code = status
        self.body = body
        self.background = None
        self.raw_headers = [
            (_encoded_name(name), value.encode("latin-1")) for name, value in headers.items()
        ]
        if status not in _WITHOUT_LENGTH:
            self.raw_headers.append((b"content-length", b"%d" % len(body)))

    async def __call__(self, _: Scope, __: Receive, send: Send) -> None:
        """Send it."""
        start = {"type": "http.response.start", "status": self.status_code}
        await send({**start, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": self.body})


def refusal(refused: RequestRefused) -> Response:
    """Return the response for a request that is refused."""
    kind = {"Content-Type": "text/plain; charset=utf-8"}
    body = report_text(refused.text).encode()
    return Reply(refused.status, {**refused.headers, **NO_STORE, **kind}, body)


def unavailable(error: LiftbridgeError) -> Response:
    """Return the response for a request that Liftbridge did not serve, which is logged.

    The error's own text is for operators: it names servers, and calls of the client.
    """
    logger.info("a request is answered with 503: %s", error)
    text = "Liftbridge does not answer for this stream now; try again"
    if isinstance(error, PublishOutcomeUnknown):
        text = (
            "Liftbridge has not confirmed the append, which may be stored; look for it before"
            " you try again, or append with the headers of a producer"
        )
    elif isinstance(error, NotFound):
        text = (
            "Liftbridge does not have the log of this stream now; try again, and if that does not"
            " help, delete the stream and create it again"
        )
    return refusal(RequestRefused(503, text, {"Retry-After": "1"}))


class CommonHeaders:
    """Adds what all responses have to those of an application, unless they have it.

    Args:
        app: the application behind it.
        access: which pages may read responses.
    """

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = list(message["headers"])
                given = {name for name, _ in headers}
                common = self._access.headers(scope)
                message["headers"] = headers + [each for each in common if each[0] not in given]
            await send(message)

        await self._app(scope, receive, send_with_headers)
