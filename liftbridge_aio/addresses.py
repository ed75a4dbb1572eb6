"""Addresses as people write them: `host`, `host:port`, `[ipv6]:port`. Pure."""

from __future__ import annotations

import re
from typing import Final

from .errors import InvalidRequest

_ADDRESS: Final = re.compile(
    r"""
    (?P<bare_ipv6> [0-9a-f]* : [0-9a-f]* : [0-9a-f:.]* (%\w+)? )
    | ( \[ (?P<ipv6> [0-9a-f]* : [0-9a-f:.]* (%\w+)? ) \] | (?P<host> [^\s:/@\[\]]+ ) )
      ( : (?P<port> [0-9]{1,5} ) )?
    """,
    re.VERBOSE | re.IGNORECASE,
)


def format_address(host: str, port: int) -> str:
    """Join host and port; an IPv6 host gets its brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_address(address: str, default_port: int = 9292) -> tuple[str, int]:
    """Split `host`, `host:port`, `[ipv6]:port` or a bare IPv6 address.

    Raises:
        InvalidRequest: the address has no proper host or port, or something else besides.
    """
    text = address.strip()
    match = _ADDRESS.fullmatch(text)
    if match is None:
        message = (
            f"{address!r} is no address; write host:port, for example 127.0.0.1:{default_port}"
        )
        raise InvalidRequest(message)
    port = int(match["port"] or default_port)
    if not 1 <= port <= 65_535:
        message = f"the port of {address!r} is not in the range from 1 to 65535"
        raise InvalidRequest(message)
    return match["ipv6"] or match["bare_ipv6"] or match["host"], port
