"""Access by pages in browsers: which hosts and origins are answered, and what responses allow."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final
from urllib.parse import urlsplit

from starlette.types import Scope

from liftbridge_aio.durable_streams.core import protocol
from liftbridge_aio.durable_streams.core.origins import (
    ANY,
    Host,
    is_own_origin,
    parse_host,
    parse_origin,
)
from liftbridge_aio.durable_streams.core.requests import RequestRefused

from .options import GatewayOptions
from .streams import PREFIX

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
METHODS: Final = "GET, HEAD, PUT, POST, DELETE, OPTIONS"
_CONTENT: Final = {
    "X-Content-Type-Options": "nosniff",
    # What a stream holds may be a page: in the sandbox it runs nothing, and belongs to no origin.
    "Content-Security-Policy": "default-src 'none'; sandbox; frame-ancestors 'none'",
}
_SAID_CHARS: Final = 100

Headers = list[tuple[bytes, bytes]]


class Access:
    """Decides by `Host` and `Origin`.

    Args:
        options: settings of the gateway.
    """

    def __init__(self, options: GatewayOptions) -> None:
        given = options.allow_origins
        self._streams_are_open = given is None or ANY in given
        """Pages of all origins may use streams."""
        self._all_is_open = given is not None and ANY in given
        """They may use everything else, too."""
        self._origins = frozenset(
            origin for each in given or () if (origin := parse_origin(each)) is not None
        )
        hosts = options.allow_hosts
        self._any_host = options.authorize is not None if hosts is None else ANY in hosts
        public = urlsplit(options.public_url or "").netloc
        self._hosts = frozenset(
            host.name for each in (*(hosts or ()), public) if (host := _host(each)) is not None
        )
        exposed = {"Access-Control-Expose-Headers": ", ".join(_EXPOSED)}
        shared = {"Cross-Origin-Resource-Policy": "cross-origin"}
        self._open = _encoded({**_CONTENT, **shared, "Access-Control-Allow-Origin": ANY, **exposed})
        self._allowed = _encoded({**_CONTENT, **shared, **exposed, "Vary": "Origin"})
        own = {"Cross-Origin-Resource-Policy": "same-origin", "Vary": "Origin"}
        self._own = _encoded({**_CONTENT, **own})

    def refusal(self, scope: Scope) -> RequestRefused | None:
        """Return why a request is refused: for its host, or for the page that sends it."""
        hosts = _values(scope, b"host")
        for host in hosts:
            known = _host(host)
            if known is None:
                return RequestRefused(400, f"{host[:_SAID_CHARS]!r} is not a host")
            if not (self._any_host or known.is_fixed or known.name in self._hosts):
                text = f"this gateway does not serve the host {host[:_SAID_CHARS]!r}: allow_hosts"
                return RequestRefused(421, f"{text} (--allow-host) names those that it does")
        if self._is_open(scope):
            return None
        for origin in _values(scope, b"origin"):
            if not self._allows(origin, hosts):
                text = f"pages of {origin[:_SAID_CHARS]!r} may not use this: allow_origins"
                return RequestRefused(403, f"{text} (--allow-origin) names those that may")
        return None

    def headers(self, scope: Scope) -> Headers:
        """Return what all responses to a request have."""
        if self._is_open(scope):
            return self._open
        origins = _values(scope, b"origin")
        if len(origins) == 1 and parse_origin(origins[0]) in self._origins:
            origin = (b"access-control-allow-origin", origins[0].encode("latin-1"))
            return [*self._allowed, origin]
        return self._own

    def _is_open(self, scope: Scope) -> bool:
        if self._all_is_open:
            return True
        path: str = scope["path"].removeprefix(scope.get("root_path", ""))
        return self._streams_are_open and path.startswith(PREFIX)

    def _allows(self, origin: str, hosts: list[str]) -> bool:
        if parse_origin(origin) in self._origins:
            return True
        return len(hosts) == 1 and is_own_origin(origin, hosts[0])


def preflight_headers() -> Mapping[str, str]:
    """Return what OPTIONS are answered with; whether a page may go on, `Access.headers` say."""
    return {
        "Allow": METHODS,
        "Access-Control-Allow-Methods": METHODS,
        "Access-Control-Allow-Headers": ", ".join(_ALLOWED),
        "Access-Control-Max-Age": "86400",
    }


@lru_cache(256)
def _host(text: str) -> Host | None:
    return parse_host(text)


def _values(scope: Scope, name: bytes) -> list[str]:
    return [value.decode("latin-1") for each, value in scope["headers"] if each == name]


def _encoded(headers: Mapping[str, str]) -> Headers:
    return [(name.lower().encode(), value.encode()) for name, value in headers.items()]
