"""Parses servers as users write them: addresses, or one URL with TLS parameters. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final
from urllib.parse import unquote

from liftbridge_aio._core.addresses import format_address, parse_address
from liftbridge_aio.errors import InvalidRequest
from liftbridge_aio.tls import TLS, tls_variable

_PLAIN: Final = "liftbridge"
_SECURE: Final = "liftbridge+tls"
_PARAMETERS: Final = ("ca", "cert", "key", "server_name")
_EXAMPLE: Final = f"{_SECURE}://host:9292,host2:9292?ca=ca.pem"


@dataclass(frozen=True, slots=True)
class Servers:
    """Parsed servers: their addresses, and the TLS settings of the URL."""

    addresses: tuple[str, ...]
    """`host:port` of each."""
    secure: bool | None = None
    """True for TLS, False for plain connections; None: not specified."""
    tls_values: tuple[tuple[str, str], ...] = ()
    """Fields of `TLS` given in the URL, with their values."""

    def over(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Return the environment with the TLS settings of the URL in place of its own."""
        return {**environ, **{tls_variable(name): value for name, value in self.tls_values}}

    def tls(self, otherwise: TLS | None) -> TLS | None:
        """Return the TLS options, where the URL takes precedence over the client's options.

        Args:
            otherwise: the client's options; None: no TLS.

        Returns:
            None for connections without TLS.

        Raises:
            InvalidRequest: the two contradict each other.
        """
        if self.secure is None:
            return otherwise
        if self.secure:
            values: dict[str, Any] = dict(self.tls_values)
            return replace(otherwise or TLS(), **values)
        if otherwise is not None:
            raise InvalidRequest(f"{_PLAIN}:// is without TLS, but TLS is set; write {_SECURE}://")
        return None


def split_servers(text: str) -> list[str]:
    """Split the value of a variable or flag: comma-separated addresses, or one URL."""
    if "://" in text:
        return [text.strip()]
    return [part.strip() for part in text.split(",") if part.strip()]


def parse_servers(texts: Sequence[str]) -> Servers:
    """Parse addresses, or one URL: `liftbridge://host:port,host:port` or `liftbridge+tls://…?ca=…`.

    Parameters of the URL are the fields of `TLS` that are not secret: `ca`, `cert`, `key` (paths)
    and `server_name`.

    Raises:
        InvalidRequest: an address or the URL is invalid. Possible secrets are not repeated.
    """
    urls = [text for text in texts if "://" in text]
    if not urls:
        return Servers(tuple(_address(text) for text in texts))
    if len(texts) > 1:
        raise InvalidRequest(f"give one URL with all servers in it, for example {_EXAMPLE}")
    return _parse_url(urls[0].strip())


def _parse_url(url: str) -> Servers:
    scheme, _, rest = url.partition("://")
    if scheme.lower() not in {_PLAIN, _SECURE}:
        given = f", not {scheme}://" if re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*", scheme) else ""
        raise InvalidRequest(
            f"a URL of servers begins with {_PLAIN}:// or {_SECURE}://{given}: write {_EXAMPLE}"
        )
    if "#" in rest:
        raise InvalidRequest(
            f"a URL of servers has no fragment; write %23 for a #, as in {_EXAMPLE}"
        )
    hosts, _, query = rest.partition("?")
    hosts = hosts.removesuffix("/")
    if "@" in hosts:
        _refuse_secret("names and passwords")
    if "/" in hosts:
        raise InvalidRequest(f"a URL of servers has no path; write {_EXAMPLE}")
    # The zone of an IPv6 address follows %25 in a URL (RFC 6874).
    parts = (part.replace("%25", "%") for part in hosts.split(",") if part.strip())
    addresses = tuple(map(_address, parts))
    if not addresses:
        raise InvalidRequest(f"the URL names no server; write {_EXAMPLE}")
    secure = scheme.lower() == _SECURE
    return Servers(addresses, secure, _parameters(query, secure=secure))


def _parameters(query: str, *, secure: bool) -> tuple[tuple[str, str], ...]:
    seen: dict[str, str] = {}
    for part in query.split("&") if query else ():
        name, value = _pair(part)
        if "password" in name.lower() or "token" in name.lower() or "secret" in name.lower():
            _refuse_secret("passwords")
        if name not in _PARAMETERS:
            raise InvalidRequest(f"a URL of servers takes {', '.join(_PARAMETERS)}; not {name!r}")
        if name in seen or not value:
            how = "twice" if name in seen else "without a value"
            raise InvalidRequest(f"the URL of servers names {name} {how}")
        seen[name] = value
    if seen and not secure:
        raise InvalidRequest(
            f"{_PLAIN}:// is without TLS and takes no parameters; write {_SECURE}://"
        )
    return tuple(seen.items())


def _pair(part: str) -> tuple[str, str]:
    # Not by parse_qs, which turns the + of a path into a space.
    name, equals, value = part.partition("=")
    if not equals or ";" in part:
        raise InvalidRequest(
            "the parameters of the URL are not name=value, with & between, and %3B for a"
            f" semicolon: write {_EXAMPLE}"
        )
    try:
        name, value = unquote(name, errors="strict"), unquote(value, errors="strict")
    except UnicodeDecodeError:
        raise InvalidRequest("the parameters of the URL are not UTF-8, with % before") from None
    if "\0" in name + value:
        raise InvalidRequest("the parameters of the URL have a NUL (%00) in them")
    return name, value


def _refuse_secret(what: str) -> None:
    raise InvalidRequest(
        f"{what} do not belong in a URL, which ends up in logs: give the password of a key as "
        "TLS(key_password=…) or in the variable LIFTBRIDGE_TLS_KEY_PASSWORD"
    )


def _address(text: str) -> str:
    return format_address(*parse_address(text))
