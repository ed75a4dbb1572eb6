"""The arguments that commands talking to servers share, and the client they make."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Final

from cyclopts import Parameter

from liftbridge_aio.client import Client
from liftbridge_aio.errors import InvalidRequest
from liftbridge_aio.options import ClientOptions, seconds
from liftbridge_aio.server_url import Servers, parse_servers, split_servers
from liftbridge_aio.tls import TLS, tls_variable

from .arguments import DURATION_HELP, BadArgument, parse_duration

AsJson = Annotated[
    bool, Parameter(name="--json", negative="", help="Write JSON to stdout, and nothing else.")
]
Partition = Annotated[int, Parameter(help="Partition of the stream.")]
StreamName = Annotated[str, Parameter(help="Name of the stream.")]
ResumeAll = Annotated[
    bool, Parameter(negative="", help="A publish to any partition resumes all of them.")
]
Off = Annotated[bool, Parameter(negative="", help="Make it writable again.")]


@Parameter(name="*", group="Connection")
@dataclass(frozen=True, kw_only=True)
class Connection:
    """Where the servers are and how long to wait for them."""

    servers: Annotated[
        str,
        Parameter(
            env_var="LIFTBRIDGE_SERVERS",
            help="Addresses to start from: host:port,host:port,… or one URL, which may ask for TLS:"
            " liftbridge+tls://host:port,…?ca=ca.pem",
        ),
    ] = "127.0.0.1:9292"
    tls: Annotated[
        bool,
        Parameter(negative="", help="Speak TLS (or LIFTBRIDGE_TLS=1); the flags below imply it."),
    ] = False
    tls_ca: Annotated[
        Path | None,
        Parameter(
            help="File with the authorities that vouch for servers (or LIFTBRIDGE_TLS_CA). Default:"
            " the system's.",
        ),
    ] = None
    tls_cert: Annotated[
        Path | None,
        Parameter(help="File with the certificate to show (or LIFTBRIDGE_TLS_CERT)."),
    ] = None
    tls_key: Annotated[
        Path | None,
        Parameter(
            help="File with its private key (or LIFTBRIDGE_TLS_KEY), of which a password is in"
            " LIFTBRIDGE_TLS_KEY_PASSWORD. Default: it is in the same file.",
        ),
    ] = None
    tls_server_name: Annotated[
        str | None,
        Parameter(
            help="Name that the servers' certificates are for (or LIFTBRIDGE_TLS_SERVER_NAME)."
            " Default: the host of the address.",
        ),
    ] = None
    timeout: Annotated[
        str | None,
        Parameter(help=f"How long one call may take ({DURATION_HELP}). Default: the client's."),
    ] = None

    def client(self, *, max_in_flight: int | None = None, only: str | None = None) -> Client:
        """Make a client that is not connected yet.

        Args:
            max_in_flight: Publishes that may wait for their acks; None: the client's value.
            only: the address of the only server to talk to, whatever it tells of others.

        Raises:
            BadArgument: an address or the timeout is none.
        """
        servers = self._servers()
        try:
            options = self._options(servers)
            if max_in_flight is not None:
                options = replace(options, max_in_flight=max_in_flight)
            if only is not None:
                return Client(only, options=replace(options, address_map=lambda _: only))
            return Client(*servers.addresses, options=options)
        except (InvalidRequest, ValueError) as error:
            raise BadArgument(str(error)) from None

    @property
    def addresses(self) -> tuple[str, ...]:
        """`host:port` of each server.

        Raises:
            BadArgument: one is none.
        """
        return self._servers().addresses

    def _servers(self) -> Servers:
        texts = split_servers(self.servers)
        if not texts:
            message = "--servers names no server"
            raise BadArgument(message)
        try:
            return parse_servers(texts)
        except ValueError as error:
            raise BadArgument(str(error)) from None

    def _options(self, servers: Servers) -> ClientOptions:
        flags = {
            name: value
            for name in ("ca", "cert", "key", "server_name")
            if (value := getattr(self, f"tls_{name}")) is not None
        }
        said = {tls_variable(name): str(value) for name, value in flags.items()}
        options = ClientOptions.from_env(
            servers.over({**os.environ, **said}), secure=bool(servers.secure or self.tls or flags)
        )
        tls = options.tls
        if tls is None and (self.tls or flags):  # LIFTBRIDGE_TLS=0 is only for where nobody asks
            tls = TLS(**{**flags, **dict(servers.tls_values)})
        options = replace(options, tls=servers.tls(tls))
        if self.timeout is None:
            return options
        limit = parse_duration(self.timeout)
        return replace(
            options,
            connect_timeout=min(limit, seconds(options.connect_timeout)),
            call_timeout=limit,
            ack_timeout=limit,
            publish_timeout=limit,
            resubscribe_timeout=limit,
            not_found_timeout=min(limit, seconds(options.not_found_timeout)),
        )


DEFAULT_CONNECTION: Final = Connection()
"""What commands take where no flag is given."""
