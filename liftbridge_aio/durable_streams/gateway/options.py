"""Options of the gateway: frozen, and checked when created."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from liftbridge_aio._core.arguments import (
    INT32_MAX,
    check_callable,
    check_flags,
    check_text,
    check_type,
    check_whole_number,
    several,
)
from liftbridge_aio._core.names import stream_name_problem
from liftbridge_aio.durable_streams.core.origins import ANY, SELF, parse_host, parse_origin
from liftbridge_aio.errors import InvalidRequest
from liftbridge_aio.options import OWN_STREAM, Duration, StreamOptions, timer_seconds

Authorize = Callable[[Request], Awaitable[Response | None]]
"""Returns None to let a request pass, or the response that refuses it."""

_EXAMPLES: Final = {
    "allow_origins": "an origin like https://shop.example, * or self",
    "allow_hosts": "a name like streams.example without a port, or *",
}
_MAX_BODY: Final = 900_000


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayOptions:
    """Settings of a gateway; durations in seconds. Gateways with one registry share its streams."""

    registry: str = "durable-streams"
    """Liftbridge's name of the stream that registers all others, and prefix of their names."""
    replication_factor: int = 1
    """Servers that store each stream; -1: all. A registry that exists is left as it is."""
    stream: StreamOptions = OWN_STREAM
    """Settings of the streams in Liftbridge, such as their retention; by default nothing is
    removed, whatever servers do with other streams."""
    long_poll_timeout: Duration = 30.0
    """Longest wait of a long-poll."""
    sse_duration: Duration = 60.0
    """Life of a response of Server-Sent Events, after which the client connects again."""
    write_timeout: Duration = 30.0
    """Longest time that a reader of Server-Sent Events may take none, unless the server itself cuts
    off such readers."""
    body_timeout: Duration = 60.0
    """Longest time that the body of a request may take."""
    idle_timeout: Duration = 60.0
    """Seconds without requests after which a stream is no longer followed."""
    max_body_bytes: int = _MAX_BODY
    """Largest body of a request. Servers of Liftbridge take messages of 1 MiB at most, unless they
    and the client's `max_message_bytes` are configured otherwise."""
    max_response_bytes: int = 1 << 20
    """Bytes after which a response ends, at the next message; the client reads on."""
    max_cached_bytes: int = 4 << 20
    """Newest bytes of each followed stream that are kept in memory."""
    native: bool = True
    """Show Liftbridge's own streams, read-only, below `/v1/liftbridge/`."""
    page: bool = True
    """Serve the page that lists and tails streams, at `/`, and what it lists, at `/v1/streams`."""
    webhooks: bool = False
    """Let subscriptions send requests to URLs that their creators choose: those of public hosts
    over https, and those of this machine over http."""
    public_url: str | None = None
    """URL at which receivers of webhooks reach the gateway; None: that of who subscribed."""
    allow_origins: Collection[str] | None = None
    """Origins whose pages may use all of the gateway, while those of others may use nothing; `*`:
    any. Its own page always may, so `["self"]` allows no other. None: pages of any origin may use
    streams, and only its own page may read Liftbridge's streams and the list."""
    allow_hosts: Collection[str] | None = None
    """Names of the gateway's host; `*`: any. Requests for other hosts are refused, but for
    addresses, `localhost` and that of `public_url`. None: no more names, or any with `authorize`,
    as credentials are not sent to a name that another site has led here."""
    authorize: Authorize | None = None
    """Called with every request first; with it responses are not for shared caches. It may read the
    body, whole and of `max_body_bytes` at most, and the gateway still gets it."""

    def __post_init__(self) -> None:
        """Check every field.

        Raises:
            InvalidRequest: a value is invalid.
            WrongType: a value has the wrong type.
        """
        check_text(self.registry, "registry")
        if (problem := stream_name_problem(self.registry)) is not None:
            raise InvalidRequest(problem)
        if not {"*", ">"}.isdisjoint(self.registry.split(".")):
            raise InvalidRequest(
                "registry has no wildcards: it would receive what other streams are sent"
            )
        check_type(self.stream, StreamOptions, "stream must be StreamOptions")
        for name in (
            "long_poll_timeout",
            "sse_duration",
            "write_timeout",
            "body_timeout",
            "idle_timeout",
        ):
            if timer_seconds(getattr(self, name), name) == 0:
                raise InvalidRequest(f"{name} must be longer than 0 seconds")
        check_whole_number(self.replication_factor, "replication_factor", -1, INT32_MAX)
        for name in ("max_body_bytes", "max_response_bytes", "max_cached_bytes"):
            check_whole_number(getattr(self, name), name, 1, INT32_MAX)
        check_flags(native=self.native, page=self.page, webhooks=self.webhooks)
        if self.public_url is not None:
            check_text(self.public_url, "public_url")
        self._check_access()
        if self.authorize is not None:
            check_callable(self.authorize, "authorize")

    def _check_access(self) -> None:
        for name, is_valid in (("allow_origins", _is_origin), ("allow_hosts", _is_host)):
            given = getattr(self, name)
            if given is None:
                continue
            for each in several(given, f"{name} are given as a list"):
                check_text(each, f"each of {name}")
                if not is_valid(each):
                    raise InvalidRequest(f"{name} has {each!r}; write {_EXAMPLES[name]}")


def _is_origin(text: str) -> bool:
    return text in {ANY, SELF} or parse_origin(text) is not None


def _is_host(text: str) -> bool:
    host = parse_host(text)
    return text == ANY or (host is not None and host.port is None)
