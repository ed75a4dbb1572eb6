"""The gateway: Durable Streams over HTTP, stored in Liftbridge.

    app = gateway_app("127.0.0.1:9292")  # for any ASGI server, such as uvicorn

Needs the extra `durable-streams`. The guide is `docs/gateway.md`.

- `access`: Access by pages in browsers: which hosts and origins are answered, and what responses
  allow.
- `app`: The gateway as an ASGI application on Starlette.
- `bodies`: Bodies of requests: whole, in time, and not too large.
- `creation`: Creation of streams and forks: first the log, then the registration, which one gateway
  wins.
- `events_response`: A response of Server-Sent Events: what a stream holds, and then what is
  appended to it.
- `followed_log`: A partition of Liftbridge that is followed from where its state is known, and
  written with care.
- `hosted_logs`: The logs of streams that a gateway follows, and reads across them: a fork begins in
  others.
- `hosted_stream`: A stream's own log, as the gateway holds it: its state, and its newest messages.
- `http_protocol`: uvicorn's protocol with limits that it has not: for headers, and for clients that
  do nothing.
- `native_endpoint`: The endpoint of Liftbridge's own streams, which can only be read.
- `options`: Options of the gateway: frozen, and checked when created.
- `page`: The page of the gateway, and the list of streams that it shows.
- `registry_log`: The registry of all streams: a log of Liftbridge that every gateway follows and
  writes.
- `responses`: Responses: bodies, refusals, and the headers that all of them have.
- `snapshots`: Snapshots of the states of streams, in the registry: what outlives the messages of a
  log.
- `stream_endpoint`: The endpoint of streams: PUT, POST, HEAD, GET and DELETE of the protocol.
- `streams`: The streams of a gateway: created, deleted, expired, and their logs cleaned up.
- `subscription_endpoint`: The endpoints of subscriptions, below `/v1/stream/__ds/`.
- `subscriptions`: The subscriptions of a gateway: registered beside its streams, woken, and their
  workers leased.
- `webhooks`: Webhooks: wakes that are signed and sent over HTTP, and the keys that verify them.
"""

from __future__ import annotations

try:
    import starlette  # noqa: F401 - only looked for
except ImportError as error:
    raise ImportError(
        f"Starlette is missing ({error}): pip install 'liftbridge-aio[durable-streams]'"
    ) from error

from .app import Gateway, gateway_app
from .options import GatewayOptions

__all__ = ["Gateway", "GatewayOptions", "gateway_app"]


def __dir__() -> list[str]:
    return __all__
