"""`liftbridge-aio gateway`: serve Durable Streams over HTTP from Liftbridge."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import replace
from typing import Annotated, Final

from cyclopts import Parameter

from liftbridge_aio._core.addresses import format_address
from liftbridge_aio.durable_streams.core.origins import parse_host

from .arguments import DURATION_HELP, parse_duration
from .connection import (
    DEFAULT_CONNECTION,
    AsJson,
    ConnectionFlags,
    Integer,
    OptionalInteger,
    Port,
)
from .output import say, write_json, write_line
from .running import CLIENT, in_event_loop, stop_signals

_KEEP_ALIVE: Final = 75
"""Seconds after which unused connections are closed: longer than clients keep theirs, which would
otherwise send requests into a connection that is just being closed."""
_CLOSE_TIMEOUT: Final = 5.0
"""Seconds after which clients that neither send nor take anything are cut off at the end."""


@in_event_loop(*CLIENT)
async def gateway(
    *,
    host: Annotated[str, Parameter(help="Address to listen on.")] = "127.0.0.1",
    port: Port = 4437,
    registry: Annotated[
        str, Parameter(help="Stream that registers all others; gateways with one share them.")
    ] = "durable-streams",
    replication_factor: Annotated[
        Integer, Parameter(help="Servers that store each new stream; -1: all.")
    ] = 1,
    min_isr: Annotated[
        OptionalInteger,
        Parameter(
            help="Least number of in-sync replicas that have a message before it is answered."
            " Default: as the servers have it."
        ),
    ] = None,
    long_poll_timeout: Annotated[
        str, Parameter(help=f"Longest wait of a long-poll ({DURATION_HELP}).")
    ] = "30s",
    allow_origin: Annotated[
        tuple[str, ...],
        Parameter(
            negative="",
            help="Origin whose pages may use all of the gateway, while others may use nothing"
            " (repeatable; * for any, self for none but the gateway's own page). Default: pages of"
            " any origin may use streams, and nothing else.",
        ),
    ] = (),
    allow_host: Annotated[
        tuple[str, ...],
        Parameter(
            negative="",
            help="Name of the gateway's host (repeatable; * for any). Requests for other names"
            " are refused, but for addresses, localhost, --host and this machine's name.",
        ),
    ] = (),
    webhooks: Annotated[
        bool,
        Parameter(
            negative="", help="Let subscriptions send requests to URLs that their creators choose."
        ),
    ] = False,
    as_json: AsJson = False,
    connection: ConnectionFlags = DEFAULT_CONNECTION,
) -> None:
    """Serve Durable Streams from Liftbridge until Ctrl-C or SIGTERM.

    Then it answers what it can within 5 seconds; a second Ctrl-C ends it at once.

    Its URL is written to stdout when it accepts requests; streams are below /v1/stream/. It needs
    the extra durable-streams.

    For example:

        liftbridge-aio gateway
        liftbridge-aio gateway --host 0.0.0.0 --port 8080 --servers liftbridge:9292
        liftbridge-aio gateway --port 0 --replication-factor 3 --min-isr 2 --json
    """
    with stop_signals() as stop:
        # help must not wait for it
        import uvicorn  # noqa: PLC0415

        from liftbridge_aio.durable_streams.gateway import (  # noqa: PLC0415
            Gateway,
            GatewayOptions,
        )
        from liftbridge_aio.durable_streams.gateway.http_protocol import (  # noqa: PLC0415
            LimitedHttpProtocol,
        )

        options = GatewayOptions(
            registry=registry,
            replication_factor=replication_factor,
            stream=replace(GatewayOptions().stream, min_isr=min_isr),
            long_poll_timeout=parse_duration(long_poll_timeout),
            allow_origins=allow_origin or None,
            allow_hosts=[*allow_host, *_own_names(host)],
            webhooks=webhooks,
        )
        async with connection.client() as client:
            await client.wait_ready()
            async with Gateway(client, options) as app:
                config = uvicorn.Config(
                    app,
                    http=LimitedHttpProtocol,
                    ws="none",
                    lifespan="off",
                    log_level="warning",
                    access_log=False,
                    timeout_keep_alive=_KEEP_ALIVE,
                )
                server = uvicorn.Server(config)
                with _listening(host, port) as listener:
                    address = format_address(*listener.getsockname()[:2])
                    async with asyncio.TaskGroup() as group:
                        serving = group.create_task(server.serve([listener]))
                        url = f"http://{address}"
                        if as_json:
                            write_json({"url": url})
                        else:
                            write_line(url)
                        say("The gateway is ready; Ctrl-C stops it.")
                        await asyncio.wait(
                            {serving, group.create_task(stop.wait())},
                            return_when=asyncio.FIRST_COMPLETED,
                        )
                        stop.set()
                        app.end_reads()
                        server.should_exit = True
                        await asyncio.wait({serving}, timeout=_CLOSE_TIMEOUT)
                        # It waits no longer, as after a second Ctrl-C.
                        server.force_exit = True
                        for served in tuple(server.server_state.connections):
                            served.transport.abort()


def _own_names(host: str) -> list[str]:
    """Return the names under which clients reach this machine, as far as they can be names."""
    names = (host, socket.gethostname())
    return [each for each in names if (known := parse_host(each)) and not known.is_fixed]


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise OSError(
            f"the gateway cannot listen at {format_address(host, port)}: {error}"
        ) from None
