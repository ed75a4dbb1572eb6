"""Responses: bodies, refusals, and the headers that all of them have."""

from __future__ import annotations

import random
import time
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from liftbridge_aio.durable_streams.core import protocol
from liftbridge_aio.durable_streams.core.caching import next_cursor
from liftbridge_aio.durable_streams.core.requests import RequestRefused

from .options import GatewayOptions

NO_STORE: Final = {"Cache-Control": "no-store"}

_EXPOSED: Final = (
    protocol.STREAM_NEXT_OFFSET,
    protocol.STREAM_UP_TO_DATE,
    protocol.STREAM_CLOSED,
    protocol.STREAM_CURSOR,
    protocol.STREAM_TTL,
    protocol.STREAM_EXPIRES_AT,
    protocol.SSE_DATA_ENCODING,
    protocol.PRODUCER_EPOCH,
    protocol.PRODUCER_SEQ,
    protocol.PRODUCER_EXPECTED_SEQ,
    protocol.PRODUCER_RECEIVED_SEQ,
    "ETag",
    "Location",
    "Retry-After",
)
"""Headers of responses that pages of other origins may read."""
_ALLOWED: Final = (
    "Authorization",
    "Content-Type",
    "If-Match",
    "If-None-Match",
    protocol.STREAM_SEQ,
    protocol.STREAM_TTL,
    protocol.STREAM_EXPIRES_AT,
    protocol.STREAM_CLOSED,
    protocol.STREAM_FORKED_FROM,
    protocol.STREAM_FORK_OFFSET,
    protocol.STREAM_FORK_SUB_OFFSET,
    protocol.PRODUCER_ID,
    protocol.PRODUCER_EPOCH,
    protocol.PRODUCER_SEQ,
)
"""Headers of requests that pages of other origins may send."""
_DISCARDED: Final = 64 << 20
METHODS: Final = "GET, HEAD, PUT, POST, DELETE, OPTIONS"


async def body_of(request: Request, limit: int) -> bytes:
    """Return the body of a request. Cancelling ends the wait.

    One that is too large is read on and thrown away, up to `_DISCARDED` bytes: most clients see no
    response before they have sent it.

    Raises:
        RequestRefused: it is larger than `limit` bytes.
        ClientDisconnect: the client has gone before it was complete.
    """
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size <= limit:
            parts.append(part)
        elif size > limit + _DISCARDED:
            break
    if size > limit:
        raise RequestRefused(413, f"a body has at most {limit} bytes")
    return b"".join(parts)


def joined(values: list[bytes], content_type: str) -> bytes:
    """Return messages as a body has them."""
    if protocol.is_json(content_type):
        return b"[" + b",".join(values) + b"]"
    return values[0] if len(values) == 1 else b"".join(values)


def cursor_after(given: str | None) -> str:
    """Return the cursor of a live response."""
    return next_cursor(time.time(), given, random.random())  # noqa: S311 - jitter


def refusal(refused: RequestRefused) -> Response:
    """Return the response for a request that is refused."""
    headers = {**refused.headers, **NO_STORE}
    return Response(refused.text, refused.status, headers, "text/plain")


class CommonHeaders:
    """Adds what all responses have, answers preflights of browsers, and asks `authorize`.

    Args:
        app: the application behind it.
        options: settings of the gateway.
    """

    def __init__(self, app: ASGIApp, options: GatewayOptions) -> None:
        self._app = app
        self._authorize = options.authorize
        common = {
            "X-Content-Type-Options": "nosniff",
            "Cross-Origin-Resource-Policy": "cross-origin",
        }
        self._preflight = {"Allow": METHODS}
        if options.cors_origin is not None:
            common["Access-Control-Allow-Origin"] = options.cors_origin
            common["Access-Control-Expose-Headers"] = ", ".join(_EXPOSED)
            self._preflight |= {
                "Access-Control-Allow-Methods": METHODS,
                "Access-Control-Allow-Headers": ", ".join(_ALLOWED),
                "Access-Control-Max-Age": "86400",
            }
        else:
            common["Cross-Origin-Resource-Policy"] = "same-origin"
        self._common = [
            (name.lower().encode(), value.encode("latin-1")) for name, value in common.items()
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        common = self._common

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = list(message["headers"])
                given = {name for name, _ in headers}
                headers += [each for each in common if each[0] not in given]
                message["headers"] = headers
            await send(message)

        app = self._app
        if scope["method"] == "OPTIONS":
            app = Response(status_code=204, headers=self._preflight)
        elif self._authorize is not None:
            refused = await self._authorize(Request(scope, receive))
            if refused is not None:
                app = refused
        await app(scope, receive, send_with_headers)
