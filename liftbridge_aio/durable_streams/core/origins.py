"""Hosts and origins in requests of browsers: which of them may use a gateway. Pure.

A page of another site can send requests to any address that its browser reaches. The browser names
the page's site in `Origin`, which the page cannot forge. A page whose own host name suddenly leads
to the gateway's address (DNS rebinding) has the same origin as the gateway, and is known by that
name in `Host`.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Final, NamedTuple

SELF: Final = "self"
"""Stands for the gateway's own page, in a list of origins."""
ANY: Final = "*"
"""Stands for all origins, or for all hosts."""

_HOST: Final = re.compile(r"(\[[0-9a-f:.]{2,45}\]|[a-z0-9._-]{1,253})(?::([0-9]{1,5}))?")
_ORIGIN: Final = re.compile(r"(https?)://([^/?#@]{1,261})")
_PORT_MAX: Final = 65_535
_PORTS: Final = {"http": "80", "https": "443"}


class Host(NamedTuple):
    """The host that a request, or an origin, names."""

    name: str
    """In lower case, without brackets."""
    port: str | None
    """None for that of the scheme."""

    @property
    def is_fixed(self) -> bool:
        """True for addresses and `localhost`, whose meaning no site can change."""
        if self.name == "localhost" or self.name.endswith(".localhost"):
            return True
        try:
            ipaddress.ip_address(self.name)
        except ValueError:
            return False
        return True


def parse_host(text: str) -> Host | None:
    """Return a host with or without a port; None for any other text."""
    found = _HOST.fullmatch(text.strip().lower())
    if found is None or int(found[2] or 0) > _PORT_MAX:
        return None
    return Host(found[1].strip("[]").rstrip("."), found[2])


def parse_origin(text: str) -> tuple[str, Host] | None:
    """Return the scheme and the host of an origin; None for any other text, such as `null`."""
    found = _ORIGIN.fullmatch(text.strip().lower())
    host = None if found is None else parse_host(found[2])
    if found is None or host is None:
        return None
    scheme = found[1]
    return scheme, host._replace(port=None) if host.port == _PORTS[scheme] else host


def is_own_origin(origin: str, host: str) -> bool:
    """Return True if a page of an origin came from the host that its request names.

    Schemes are not compared: a proxy may speak https where the gateway speaks http.
    """
    page, asked = parse_origin(origin), parse_host(host)
    if page is None or asked is None:
        return False
    scheme, its = page
    port = None if asked.port == _PORTS[scheme] else asked.port
    return its == asked._replace(port=port)


INERT: Final = frozenset({"application/json", "text/plain", "text/event-stream"})
"""Content types that browsers show without running, or downloading, anything."""
