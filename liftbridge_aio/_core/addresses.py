"""Addresses as people write them: `host`, `host:port`, `[ipv6]:port`. Pure."""

from __future__ import annotations

import re
from typing import Final

from liftbridge_aio.errors import InvalidRequest

_ADDRESS: Final = re.compile(
    r"""
    (?P<bare_ipv6> [0-9a-f]* : [0-9a-f]* : [0-9a-f:.]* (%\w+)? )
    | ( \[ (?P<ipv6> [0-9a-f]* : [0-9a-f:.]* (%\w+)? ) \] | (?P<host> [^:\[\]]+ ) )
      ( : (?P<port> [0-9]{1,5} ) )?
    """,
    re.VERBOSE | re.IGNORECASE,
)
_NOT_IN_A_NAME: Final = re.compile(r"[\s\x00-\x1f\x7f:/@\[\]%?=&,;]")
_SURELY_NO_SECRET: Final = re.compile(r"[^\s:%?=&;]*(:[0-9]{0,5})?")
_LONGEST_NAME: Final = 253
_LONGEST_LABEL: Final = 63


def is_host_name(text: str) -> bool:
    """Return True if this is a syntactically valid host name or IPv4 address."""
    if not text or len(text) > _LONGEST_NAME or _NOT_IN_A_NAME.search(text):
        return False
    if text.isascii():  # avoids loading the IDNA codec
        return all(0 < len(label) <= _LONGEST_LABEL for label in text.removesuffix(".").split("."))
    try:
        text.encode("idna")
    except UnicodeError:  # a label that is empty or too long, for one
        return False
    return True


def format_address(host: str, port: int) -> str:
    """Join host and port; an IPv6 host gets its brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_address(address: str, default_port: int = 9292) -> tuple[str, int]:
    """Split `host`, `host:port`, `[ipv6]:port` or a bare IPv6 address.

    Raises:
        InvalidRequest: the address is not of one of these forms.
    """
    text = address.strip()
    if "@" in text:  # the part before it may be a secret
        raise InvalidRequest(
            f"an address contains an @; write host:port only, as in 127.0.0.1:{default_port}"
        )
    match = _ADDRESS.fullmatch(text)
    if match is None or (match["host"] is not None and not is_host_name(match["host"])):
        raise InvalidRequest(_problem(address, default_port))
    bare = match["bare_ipv6"]
    if bare is not None and _ends_like_a_port(bare):
        host, _, end = bare.rpartition(":")
        raise InvalidRequest(
            f"{address!r} may or may not have a port: write [{host}]:{end} or [{bare}]"
        )
    port = int(match["port"] or default_port)
    if not 1 <= port <= 65_535:
        raise InvalidRequest(f"the port of {address!r} must be from 1 to 65535")
    return match["ipv6"] or bare or match["host"], port


def _problem(address: str, default_port: int) -> str:
    """Return what is wrong with a text that is no address, without what may be a secret."""
    text = address.strip()
    several = text.split(",")
    if len(several) > 1 and all(map(_ADDRESS.fullmatch, several)):
        return f"{address!r} is several addresses: pass each as an argument of its own"
    host, colon, _ = text.partition(":")
    if colon and is_host_name(host) and not _SURELY_NO_SECRET.fullmatch(text):
        return f"the port of {host!r} must be a number from 1 to 65535"
    said = repr(address) if _SURELY_NO_SECRET.fullmatch(text) else "what was given"
    return f"{said} is not an address; write host:port, for example 127.0.0.1:{default_port}"


def _ends_like_a_port(bare: str) -> bool:
    from ipaddress import AddressValueError, IPv6Address  # noqa: PLC0415 - rarely needed

    host, _, end = bare.rpartition(":")
    if not (end.isdecimal() and 0 < int(end) < 2**16):
        return False
    try:
        IPv6Address(host)
    except AddressValueError:
        return False
    return True
