"""Flags that all commands for servers share, and the client that they configure."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any, Final, get_origin

from cyclopts import App, Parameter, Token, validators

from liftbridge_aio._client.client import Client
from liftbridge_aio._client.server_url import Servers, parse_servers, split_servers
from liftbridge_aio.errors import InvalidRequest
from liftbridge_aio.options import ClientOptions, seconds
from liftbridge_aio.tls import TLS, tls_variable

from .arguments import DURATION_HELP, BadArgument, parse_duration

AsJson = Annotated[
    bool, Parameter(name="--json", negative="", help="Write JSON to stdout, and nothing else.")
]


def _integers(kind: Any, tokens: Sequence[Token]) -> int | tuple[int, ...]:
    """Convert what was given for a flag or an argument; cyclopts would round 1.5 to 2."""
    for token in tokens:
        if not re.fullmatch(r"[+-]?\d+", token.value):
            raise ValueError(f"{token.value!r} is not an integer")
    numbers = tuple(int(token.value) for token in tokens)
    return numbers if get_origin(kind) is tuple else numbers[0]


def not_empty(_: object, group: str | None) -> None:
    """Refuse an empty id of a group, for a parameter."""
    if group == "":
        raise ValueError("the id of a group must not be empty")


Integer = Annotated[int, Parameter(converter=_integers)]
Port = Annotated[
    Integer,
    Parameter(
        validator=validators.Number(gte=0, lte=65_535), help="Port to listen on; 0: any free port."
    ),
]
OptionalInteger = Annotated[int | None, Parameter(converter=_integers)]
Integers = Annotated[tuple[int, ...], Parameter(converter=_integers)]
Partition = Annotated[Integer, Parameter(help="Partition of the stream.")]
StreamName = Annotated[str, Parameter(help="Name of the stream.")]
ResumeAll = Annotated[
    bool, Parameter(negative="", help="Let a publish to any partition resume all of them.")
]
Yes = Annotated[bool, Parameter(negative="", help="Do not ask, even on a terminal.")]
Watch = Annotated[
    bool, Parameter(negative="", help="Show it again and again, every --interval, until Ctrl-C.")
]
Interval = Annotated[str, Parameter(help=f"Interval of --watch ({DURATION_HELP}).")]
Off = Annotated[bool, Parameter(negative="", help="Make it writable again.")]


@Parameter(name="*", group="Connection")
@dataclass(frozen=True, kw_only=True)
class ConnectionFlags:
    """The addresses of servers, TLS and timeouts."""

    servers: Annotated[
        str,
        Parameter(
            env_var="LIFTBRIDGE_SERVERS",
            help="Addresses of servers: host:port,host:port,… or a URL for TLS:"
            " liftbridge+tls://host:port,…?ca=ca.pem",
        ),
    ] = "127.0.0.1:9292"
    tls: Annotated[
        bool,
        Parameter(negative="", help="Use TLS (or LIFTBRIDGE_TLS=1); the flags below imply it."),
    ] = False
    tls_ca: Annotated[
        Path | None,
        Parameter(
            help="File with the authorities to trust (or LIFTBRIDGE_TLS_CA). Default: the system's"
            " authorities.",
        ),
    ] = None
    tls_cert: Annotated[
        Path | None,
        Parameter(help="File with the client's certificate (or LIFTBRIDGE_TLS_CERT)."),
    ] = None
    tls_key: Annotated[
        Path | None,
        Parameter(
            help="File with its private key (or LIFTBRIDGE_TLS_KEY). Default: the same file. The"
            " password of an encrypted key is read from LIFTBRIDGE_TLS_KEY_PASSWORD.",
        ),
    ] = None
    tls_server_name: Annotated[
        str | None,
        Parameter(
            help="Name in the servers' certificates (or LIFTBRIDGE_TLS_SERVER_NAME). Default: the"
            " host of the address.",
        ),
    ] = None
    timeout: Annotated[
        str | None,
        Parameter(help=f"Timeout of each call ({DURATION_HELP}). Default: the client's."),
    ] = None

    def client(self, *, only: str | None = None, **options: Any) -> Client:
        """Return a client that is not connected yet.

        Args:
            only: the address of the only server to connect to, whatever addresses it advertises.
            options: fields of `ClientOptions`.

        Raises:
            BadArgument: an address or the timeout is invalid.
        """
        servers = self._servers()
        try:
            chosen = replace(self._options(servers), **options)
            if only is not None:
                return Client(only, options=replace(chosen, address_map=lambda _: only))
            return Client(*servers.addresses, options=chosen)
        except (InvalidRequest, ValueError) as error:
            raise BadArgument(str(error)) from None

    @property
    def addresses(self) -> tuple[str, ...]:
        """The `host:port` of each server.

        Raises:
            BadArgument: an address is invalid.
        """
        return self._servers().addresses

    def _servers(self) -> Servers:
        texts = split_servers(self.servers)
        if not texts:
            raise BadArgument("--servers or LIFTBRIDGE_SERVERS is given, and names no server")
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
        if tls is None and (self.tls or flags):  # flags override LIFTBRIDGE_TLS=0
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


DEFAULT_CONNECTION: Final = ConnectionFlags()
"""The default flags."""

_FLAGS: Final = {
    f"--{field.name.replace('_', '-')}": not isinstance(field.default, bool)
    for field in fields(ConnectionFlags)
}
"""The flags of `ConnectionFlags`; True for those that take a value."""


def connection_behind_command(app: App, words: Sequence[str]) -> list[str]:
    """Move flags of `ConnectionFlags` from before a command to after its name.

    Args:
        app: with the commands.
        words: the command line.
    """
    flags: list[str] = []
    command: list[str] = []
    at = 0
    while at < len(words):
        word = words[at]
        name, equals, _ = word.partition("=")
        count = 1
        if name in _FLAGS:
            count += _FLAGS[name] and not equals
            flags += words[at : at + count]
        elif word.startswith("-") or len(app.parse_commands([*command, word])[0]) == len(command):
            break
        else:
            command.append(word)
        at += count
    is_whole = app.parse_commands(command)[1][-1].default_command is not None
    return [*command, *(flags if is_whole else ()), *words[at:]]
