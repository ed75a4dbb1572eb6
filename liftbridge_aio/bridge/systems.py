"""The systems at the ends of a bridge, and their URLs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote

from liftbridge_aio.errors import InvalidRequest

if TYPE_CHECKING:
    from .ends import Plan, Source, Target


def _any_target(address: Address) -> None:
    """Take each address as a target."""


@dataclass(frozen=True, slots=True)
class System:
    """A system that a bridge copies from and to; its module makes one, and `bridge` lists all.

    Attributes:
        scheme: of its URLs.
        example: one of its URLs.
        identity: what identifies its messages, a format of the names of an address. Servers are
            left out: they may change, and a URL may have a password.
        message: the name of a message in logs and errors, a format of the parts of its id.
        source: makes a source.
        target: makes a target.
        check_target: raises `InvalidRequest` for an address that cannot be a target.
        is_numbered: True if its messages have numbers that grow in each partition.
        takes_after: True if a bridge can be told behind which number to begin.
        is_liftbridge: True for Liftbridge, which is at one end at least.
    """

    scheme: str
    example: str
    identity: str
    message: str
    source: Callable[[Plan], Source]
    target: Callable[[Plan], Target]
    check_target: Callable[[Address], None] = _any_target
    is_numbered: bool = False
    takes_after: bool = False
    is_liftbridge: bool = False

    def message_name(self, identity: bytes) -> str:
        """Return the name of a message, for logs and errors."""
        return self.message.format(*identity.decode().split("/"))


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
        """Return what identifies the messages, such as `stan/cluster/channel` or `nsq/topic`."""
        return self.system.identity.format(*self.names)

    @property
    def location(self) -> str:
        """The URL without user and password: system, servers and names."""
        servers = ",".join(server.rpartition("@")[2] for server in self.servers)
        return f"{self.system.scheme}://{servers}/{'/'.join(self.names)}"


def parse_address(url: str, systems: Iterable[System]) -> Address:
    """Parse a URL of one of the systems.

    Raises:
        InvalidRequest: it is none of a system, or lacks something.
    """
    by_scheme = {each.scheme: each for each in systems}
    scheme, separator, rest = url.partition("://")
    system = by_scheme.get(scheme.lower())
    if system is None or not separator:
        examples = ", ".join(each.example for each in by_scheme.values())
        raise InvalidRequest(f"a bridge takes URLs such as {examples}")
    rest, _, query = rest.partition("?")
    hosts, *path = rest.split("/")
    names = tuple(map(unquote, path))
    servers = tuple(host for host in hosts.split(",") if host)
    wanted = system.example.count("/") - 2
    if not servers or not all(names) or len(names) != wanted:
        raise InvalidRequest(f"write a {system.scheme} URL like {system.example}")
    if query and not system.is_liftbridge:
        raise InvalidRequest(f"a {system.scheme} URL has no parameters: {system.example}")
    return Address(system, servers, names, query)


def check_pair(source: Address, target: Address) -> None:
    """Refuse pairs between which no bridge copies.

    Raises:
        InvalidRequest: neither is Liftbridge, both are the same, or the target cannot be created.
    """
    if not (source.system.is_liftbridge or target.system.is_liftbridge):
        raise InvalidRequest(
            f"a bridge has Liftbridge on one side at least, unlike {source} and {target}"
        )
    if source.names == target.names and not {*source.servers}.isdisjoint(target.servers):
        raise InvalidRequest(f"source and target are the same stream: {source.location}")
    target.system.check_target(target)
