"""Options for the servers, and for the client that connects to them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from types import MappingProxyType
from typing import Final, Self

from liftbridge_aio._client.server_url import Servers, parse_servers, split_servers
from liftbridge_aio.errors import InvalidRequest
from liftbridge_aio.options import ClientOptions
from liftbridge_aio.spark.errors import InvalidOption
from liftbridge_aio.tls import TLS

from .option_table import CLIENT_PREFIX, CONNECTION_NAMES, chosen, folded, in_seconds

_NO_VARIABLES: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """The servers and the options of the client. Hashable: connections are kept by them."""

    servers: tuple[str, ...]
    """Seeds, `host:port`."""
    settings: tuple[tuple[str, str], ...] = ()
    """Fields of `ClientOptions` and their texts, sorted."""

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Self:
        """Parse `servers` and options such as `liftbridge.callTimeout`.

        Raises:
            InvalidOption: no server is given, or an address or value is invalid.
        """
        options = folded(options)
        name = chosen(options, CONNECTION_NAMES)
        texts = split_servers(options[name.lower()]) if name else []
        if not texts:
            raise InvalidOption(
                "the option servers is missing; give host:port, separated by commas"
            )
        settings = _client_settings(options)
        try:
            servers = parse_servers(texts)
            settings |= _tls_settings(servers, settings)
        except InvalidRequest as error:
            raise InvalidOption(f"{name}: {error.message}") from error
        try:
            TLS.from_env({_variable(field): text for field, text in settings.items()})
        except InvalidRequest as error:
            raise InvalidOption(f"the options liftbridge.tls…: {error.message}") from error
        named = tuple(texts) if servers.secure is None else servers.addresses
        return cls(named, tuple(sorted(settings.items())))

    def client_options(self, environ: Mapping[str, str] = _NO_VARIABLES) -> ClientOptions:
        """Return the options of the client that connects to the servers.

        Args:
            environ: the environment of the process that connects. The password of an encrypted key
                comes from there, as Spark writes options into plans and logs.
        """
        variables = {_variable(field): text for field, text in self.settings}
        password = environ.get(_KEY_PASSWORD)
        if password is not None and _variable("tls_cert") in variables:
            variables[_KEY_PASSWORD] = password
        return ClientOptions.from_env(variables)


_KEY_PASSWORD: Final = "LIFTBRIDGE_TLS_KEY_PASSWORD"  # noqa: S105 - the name of a variable
_TLS_FIELDS: Final = ("tls_ca", "tls_cert", "tls_key", "tls_server_name")
_CLIENT_FIELDS: Final = {
    name.replace("_", ""): name
    for name in (*(field.name for field in fields(ClientOptions)), *_TLS_FIELDS)
}
_DURATION_FIELDS: Final = frozenset(
    field.name for field in fields(ClientOptions) if "Duration" in str(field.type)
)
_OBJECT_FIELDS: Final = frozenset({"address_map", "backoff", "hook", "interceptors", "partitioner"})


def _tls_settings(servers: Servers, settings: Mapping[str, str]) -> dict[str, str]:
    """Return the TLS settings that the URL of the servers holds."""
    if servers.secure is None:
        return {}
    wanted = settings.get("tls", "").strip().lower()
    fields_said = not servers.secure and any(field in settings for field in _TLS_FIELDS)
    if fields_said or wanted not in ({"", "1", "true"} if servers.secure else {"", "0", "false"}):
        raise InvalidRequest("the URL and the options liftbridge.tls… contradict each other")
    said = {f"tls_{field}": text for field, text in servers.tls_values}
    return {"tls": str(servers.secure).lower(), **said}


def _variable(field: str) -> str:
    return f"LIFTBRIDGE_{field.upper()}"


def _spelled(field: str) -> str:
    """Return the option for a field of the client, spelt as in the documentation."""
    first, *rest = field.split("_")
    return "".join((CLIENT_PREFIX, first, *map(str.capitalize, rest)))


def _client_settings(options: Mapping[str, str]) -> dict[str, str]:
    settings: dict[str, str] = {}
    for name, text in options.items():
        if not name.startswith(CLIENT_PREFIX) or name in CONNECTION_NAMES:
            continue
        field = _CLIENT_FIELDS.get(name.removeprefix(CLIENT_PREFIX).replace("_", ""))
        if "password" in name:
            raise InvalidOption(
                f"{name}: options are written into plans and logs, so they take no password;"
                f" set the variable {_KEY_PASSWORD} where tasks run"
            )
        if field is None:
            raise _no_such_setting(name)
        if field in _DURATION_FIELDS:
            text = in_seconds(text)  # noqa: PLW2901
        settings[field] = _checked_setting(_spelled(field), field, text)
    return settings


def _no_such_setting(name: str) -> InvalidOption:
    texts = {each: field for each, field in _CLIENT_FIELDS.items() if field not in _OBJECT_FIELDS}
    ours = {each: _spelled(field) for each, field in texts.items()}
    ours["bootstrap.servers"] = "liftbridge.bootstrap.servers"
    near = get_close_matches(name.removeprefix(CLIENT_PREFIX), ours, n=1)
    advice = f"did you mean {ours[near[0]]}?" if near else "see the fields of ClientOptions"
    return InvalidOption(f"there is no option {name}; {advice}")


def _checked_setting(name: str, field: str, text: str) -> str:
    if field in _TLS_FIELDS:  # checked together, by `parse`
        if not text.strip():
            raise InvalidOption(f"{name} is empty; give it a value, or leave it out")
        return text
    if field in _OBJECT_FIELDS:
        raise InvalidOption(f"{name} cannot be written as text")
    try:
        ClientOptions.from_env({_variable(field): text})
    except InvalidRequest as error:
        variable = _variable(field)
        problem = error.message.replace(variable if variable in error.message else field, name)
        raise InvalidOption(problem) from error
    return text
