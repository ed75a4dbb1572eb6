"""The gateway as an ASGI application on Starlette."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from types import TracebackType
from typing import Self

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from liftbridge_aio._client.client import Client
from liftbridge_aio._core.foreign_cancellation import foreign_cancellation_fails
from liftbridge_aio._runtime.stop_signal import on_stop_signals
from liftbridge_aio.durable_streams.core.parsing import decode_path
from liftbridge_aio.durable_streams.core.requests import RequestRefused
from liftbridge_aio.errors import UsageError
from liftbridge_aio.options import ClientOptions, Duration, timer_seconds

from .access import Access, preflight_headers
from .bodies import Bodies, RepeatedBody
from .native_endpoint import NativeEndpoint
from .options import GatewayOptions
from .page import Page
from .responses import CommonHeaders, Reply, refusal
from .stream_endpoint import StreamEndpoint
from .streams import PREFIX, Streams
from .subscription_endpoint import RESERVED, SubscriptionEndpoint
from .subscriptions import Subscriptions


class Gateway:
    """Serves Durable Streams from Liftbridge: an ASGI application, within its `async with` block.

    Args:
        client: connected to Liftbridge; it stays open.
        options: settings; None: the defaults.
    """

    def __init__(self, client: Client, options: GatewayOptions | None = None) -> None:
        self.options = GatewayOptions() if options is None else options
        self._streams = Streams(client, self.options)
        webhooks = None
        if self.options.webhooks:
            from .webhooks import Webhooks  # noqa: PLC0415 - needs cryptography

            webhooks = Webhooks(self._streams, self.options.public_url)
        self._subscriptions = Subscriptions(self._streams, webhooks)
        self._bodies = Bodies(timer_seconds(self.options.body_timeout))
        self._access = Access(self.options)
        self._app = CommonHeaders(Starlette(routes=list(self._routes())), self._access)
        self._endpoint = StreamEndpoint(self._streams, self._access, self.options, self._bodies)

    def _routes(self) -> Iterator[Route]:
        yield from SubscriptionEndpoint(self._subscriptions, self._bodies).routes()
        if self.options.native:
            native = NativeEndpoint(self._streams, self._access, self.options, self._bodies)
            yield Route("/v1/liftbridge/{name}/{partition}", native)
        if self.options.page:
            page = Page(self._streams, self.options)
            yield Route("/v1/streams", page.names)
            yield Route("/", page.page)

    async def __aenter__(self) -> Self:
        """Create the stream that registers all others, or read it.

        Cancelling leaves nothing running.

        Raises:
            LiftbridgeError: it could not be created or read.
        """
        await self._streams.__aenter__()
        try:
            if self._subscriptions.webhooks is not None:
                await self._subscriptions.webhooks.register()
                self._streams.on_new_registry.append(self._subscriptions.webhooks.register)
            self._subscriptions.start()
        except BaseException:
            await self._streams.__aexit__(None, None, None)
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End all reads, and follow nothing any more. Cancelling takes effect afterwards."""
        self.end_reads()
        await self._streams.__aexit__(kind, error, traceback)

    def end_reads(self) -> None:
        """End all long-polls and Server-Sent Events: servers wait for them when they shut down.

        Bodies that are not complete have three seconds more, and are refused then.
        """
        self._streams.logs.end_reads()
        self._bodies.end()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        with suppress(ClientDisconnect):  # nobody waits for an answer
            if scope["type"] == "http":
                await self._answer(scope, receive, send)
            else:
                await self._app(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        response: Response | None = None
        if scope["method"] == "OPTIONS":
            response = Reply(204, preflight_headers())
        elif (refused := _path_refusal(scope) or self._access.refusal(scope)) is not None:
            response = refusal(refused)
        elif self.options.authorize is not None:
            request = Request(scope, receive)
            body = RepeatedBody(self._bodies, request, self.options.max_body_bytes)
            receive = body.receive_again
            try:
                with foreign_cancellation_fails("authorize"):
                    response = await self.options.authorize(Request(scope, body.receive))
            except RequestRefused as error:
                response = refusal(error)
        app: ASGIApp = self._app
        if response is not None:
            app = CommonHeaders(response, self._access)
        elif _is_of_stream(scope):
            app = self._endpoint  # routing, and adding headers, would cost more than it does
        await app(scope, receive, send)


def _path_refusal(scope: Scope) -> RequestRefused | None:
    """Refuse a path that is not UTF-8: servers decode all such paths to the same ones."""
    if "\ufffd" in scope["path"] and decode_path(scope.get("raw_path") or b"") is None:
        return RequestRefused(400, "the path is not UTF-8")
    return None


def _is_of_stream(scope: Scope) -> bool:
    path: str = scope["path"].removeprefix(scope.get("root_path", ""))
    return path.startswith(PREFIX) and not f"{path}/".startswith(f"{RESERVED}/")


def gateway_app(
    *servers: str,
    options: GatewayOptions | None = None,
    client_options: ClientOptions | None = None,
    timeout: Duration | None = None,
) -> Starlette:
    """Return an ASGI application whose lifespan connects a client and serves a `Gateway`.

    At SIGTERM and SIGINT it ends all reads, because servers wait for all responses before they shut
    down.

    Args:
        servers: addresses of Liftbridge; none: what LIFTBRIDGE_SERVERS names.
        options: settings of the gateway; None: the defaults.
        client_options: how its client behaves; None: as the environment says, else the defaults.
        timeout: seconds to wait for servers that are starting; None is the client's call_timeout.

    Raises:
        LiftbridgeError: on starting: no server was ready in time, or the settings are invalid.
    """

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        if servers:
            client = Client(*servers, options=client_options)
        else:
            client = Client.from_env(options=client_options)
        async with client:
            await client.wait_ready(timeout=timeout)
            async with Gateway(client, options) as gateway:
                app.state.gateway = gateway
                with on_stop_signals(gateway.end_reads):
                    yield

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        gateway = getattr(scope["app"].state, "gateway", None)
        if gateway is None:
            raise UsageError(
                "the gateway has not started: run the lifespan of its application around yours"
            )
        await gateway(scope, receive, send)

    return Starlette(routes=[Mount("/", serve)], lifespan=lifespan)
