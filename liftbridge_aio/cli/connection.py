"""The arguments that commands talking to servers share, and the client they make."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Final

from cyclopts import Parameter

from liftbridge_aio.addresses import parse_address
from liftbridge_aio.client import Client
from liftbridge_aio.errors import InvalidRequest
from liftbridge_aio.options import ClientOptions, seconds

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
            env_var="LIFTBRIDGE_SERVERS", help="Addresses to start from: host:port,host:port,…"
        ),
    ] = "127.0.0.1:9292"
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
        addresses = self._addresses() if only is None else [only]
        try:
            options = self._options()
            if max_in_flight is not None:
                options = replace(options, max_in_flight=max_in_flight)
            if only is not None:
                options = replace(options, address_map=lambda _: only)
            return Client(*addresses, options=options)
        except (InvalidRequest, ValueError) as error:
            raise BadArgument(str(error)) from None

    def _addresses(self) -> list[str]:
        addresses = [part.strip() for part in self.servers.split(",") if part.strip()]
        if not addresses:
            message = "--servers names no server"
            raise BadArgument(message)
        for address in addresses:
            if "@" in address:  # and what stands before it may be a secret
                message = "an address of --servers has an @ in it; write host:port only"
                raise BadArgument(message)
            try:
                parse_address(address)
            except ValueError as error:
                raise BadArgument(str(error)) from None
        return addresses

    def _options(self) -> ClientOptions:
        options = ClientOptions.from_env()
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
