"""Parses the URLs of a bridge."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

from liftbridge_aio.errors import InvalidRequest


class System(enum.Enum):
    """The system at one end of a bridge; the values are the schemes of URLs."""

    STAN = "stan"
    NSQ = "nsq"
    NSQ_LOOKUP = "nsq+lookup"
    LIFTBRIDGE = "liftbridge"
    LIFTBRIDGE_TLS = "liftbridge+tls"


EXAMPLES: Final = {
    System.STAN: "stan://host:4222/cluster/channel",
    System.NSQ: "nsq://host:4150/topic/channel",
    System.NSQ_LOOKUP: "nsq+lookup://host:4161/topic/channel",
    System.LIFTBRIDGE: "liftbridge://host:9292/stream",
    System.LIFTBRIDGE_TLS: "liftbridge+tls://host:9292/stream?ca=ca.pem",
}
"""A URL of each system."""
LIFTBRIDGE: Final = frozenset({System.LIFTBRIDGE, System.LIFTBRIDGE_TLS})


@dataclass(frozen=True, slots=True)
class Address:
    """One end of a bridge.

    Attributes:
        system: the system.
        servers: `host:port` of its servers, as the URL has them.
        names: cluster and channel, topic and channel, or the stream.
        query: what follows the question mark, for TLS.
    """

    system: System
    servers: tuple[str, ...]
    names: tuple[str, ...]
    query: str = ""

    def __str__(self) -> str:
        """Return what identifies the messages, such as `stan/cluster/channel` or `nsq/topic`.

        Servers are left out: they may change, and a URL may have a password.
        """
        if self.system in LIFTBRIDGE:
            return f"liftbridge/{self.names[0]}"
        if self.system is System.STAN:
            return f"stan/{'/'.join(self.names)}"
        return f"nsq/{self.names[0]}"

    @property
    def location(self) -> str:
        """The URL without user and password: system, servers and names."""
        servers = ",".join(server.rpartition("@")[2] for server in self.servers)
        return f"{self.system.value}://{servers}/{'/'.join(self.names)}"


def message_name(source: Address, identity: bytes) -> str:
    """Return the name of a message of a source, for logs and errors."""
    text = identity.decode()
    if source.system is System.STAN:
        return f"the message of sequence {text}"
    if source.system in LIFTBRIDGE:
        return "the message of partition {}, offset {}".format(*text.split("/"))
    nsqd, _, name = text.rpartition("/")
    return f"the message {name} of nsqd at {nsqd}"


def parse_address(url: str) -> Address:
    """Parse a URL.

    Raises:
        InvalidRequest: it is none of a system, or lacks something.
    """
    scheme, separator, rest = url.partition("://")
    try:
        system = System(scheme.lower())
    except ValueError:
        system = None
    if system is None or not separator:
        text = f"a bridge takes URLs such as {', '.join(EXAMPLES.values())}"
        raise InvalidRequest(text)
    rest, _, query = rest.partition("?")
    hosts, *path = rest.split("/")
    names = tuple(map(unquote, path))
    servers = tuple(host for host in hosts.split(",") if host)
    wanted = 1 if system in LIFTBRIDGE else 2
    if not servers or not all(names) or len(names) != wanted:
        text = f"write a {system.value} URL like {EXAMPLES[system]}"
        raise InvalidRequest(text)
    if query and system not in LIFTBRIDGE:
        text = f"a {system.value} URL has no parameters: {EXAMPLES[system]}"
        raise InvalidRequest(text)
    return Address(system, servers, names, query)


def check_pair(source: Address, target: Address) -> None:
    """Refuse pairs between which no bridge copies.

    Raises:
        InvalidRequest: not exactly one of them is Liftbridge, or the target cannot be created.
    """
    if (source.system in LIFTBRIDGE) == (target.system in LIFTBRIDGE):
        text = f"a bridge has Liftbridge on one side, unlike {source} and {target}"
        raise InvalidRequest(text)
    if target.system in LIFTBRIDGE and set(target.names[0]) & set("*>"):
        text = f"a target is a stream without wildcards in its name, not {target.names[0]!r}"
        raise InvalidRequest(text)
    if target.system is System.NSQ_LOOKUP or (
        target.system is System.NSQ and len(target.servers) > 1
    ):
        text = f"messages are published to one nsqd: {EXAMPLES[System.NSQ]}"
        raise InvalidRequest(text)
