"""The protocols of the two ends of a bridge, and the messages that they pass on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from liftbridge_aio.errors import LiftbridgeError
from liftbridge_aio.model import Message

from .systems import Address

SOURCE_HEADER: Final = "bridge-source"
"""Header with the source of a message: `stan/test-cluster/orders`, or a stream of Liftbridge with
its creation time, `liftbridge/orders@1764312000000000000`."""
ID_HEADER: Final = "bridge-id"
"""Header with its id there: the sequence (NATS Streaming), nsqd and id (NSQ), or partition and
offset (Liftbridge)."""
TIME_HEADER: Final = "bridge-timestamp"
"""Header with the time at which it was published there, in Unix nanoseconds."""
MARKER_HEADER: Final = "bridge-marker"
"""Header of messages that a bridge adds: they have no value, and handlers skip them."""
TARGET_HEADER: Final = "bridge-target"
"""Header with the stream to which a bridge published; in others the headers were forwarded."""
PATH_HEADER: Final = "bridge-path"
"""Header with the sources of the bridges before the last one, each on a line, the last one first;
only in messages that several bridges have copied."""
BRIDGE_HEADERS: Final = frozenset(
    {SOURCE_HEADER, ID_HEADER, TIME_HEADER, MARKER_HEADER, TARGET_HEADER, PATH_HEADER}
)

MAX_BATCH: Final = 500
"""Messages that are copied at once."""

_NOTHING: Final[Mapping[str, bytes]] = {}


@dataclass(slots=True)
class Record:
    """A message on its way.

    Attributes:
        identity: its id in the source: what `ID_HEADER` has.
        value: what was published.
        timestamp: when, in Unix nanoseconds.
        origin: the message of the source's client.
        is_marker: True for a message that the target cannot take and the bridge skips.
        partition: where it was, if the source has partitions.
        key: its key, if it has one.
        headers: those that are copied with it.
        transaction_headers: the same, of transactions.
    """

    identity: bytes
    value: bytes
    timestamp: int
    origin: Any
    is_marker: bool = False
    partition: int = 0
    key: bytes | None = None
    headers: Mapping[str, bytes] = field(default_factory=lambda: _NOTHING)
    transaction_headers: Mapping[str, bytes] = field(default_factory=lambda: _NOTHING)


def bridge_headers(message: Message) -> Mapping[str, bytes]:
    """Return the headers of a message that a bridge published, and none if it was forwarded.

    A handler that publishes with `headers=message.headers` forwards them to another stream, where
    they would say that the bridge has copied the message.
    """
    own = message.stream.encode()
    return message.headers if message.headers.get(TARGET_HEADER, own) == own else {}


def sources_of(message: Message) -> list[bytes]:
    """Return the sources of all bridges that have copied a message, the last one first."""
    headers = bridge_headers(message)
    if SOURCE_HEADER not in headers:
        return []
    return [headers[SOURCE_HEADER], *headers.get(PATH_HEADER, b"").splitlines()]


Refuse: TypeAlias = Callable[[Record, LiftbridgeError], None]
"""Called by a target with a message that it can never take, and why; raises unless the bridge
skips such messages."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to copy, and how.

    Attributes:
        source: from where.
        target: where to.
        refuse: is told of messages that the target can never take.
        patience: seconds, the longest that a call may take.
        once: end when everything is copied that was there at the start.
        after: the number up to which the source was copied, if the target does not say.
        message_timeout: seconds after which nsqd delivers a message again that is not copied.
    """

    source: Address
    target: Address
    refuse: Refuse
    patience: float
    once: bool
    after: int | None
    message_timeout: float


class Origin(NamedTuple):
    """What a source tells its target."""

    identity: str
    """What `SOURCE_HEADER` has."""
    partitions: int = 1
    after: int | None = -1
    """The number up to which it was copied if the target has nothing of it; None: unknown."""


class Position(NamedTuple):
    """How far a partition of the source was copied."""

    number: int
    """The sequence or offset up to which the target has all."""
    timestamp: int | None = None
    """When that message was published, in Unix nanoseconds; None: the target does not tell."""


class Copied(NamedTuple):
    """What a target tells its source."""

    identity: str = ""
    """What `SOURCE_HEADER` has of messages that were copied from the target; empty: its address."""
    positions: Mapping[int, Position] = {}
    """By partition, of those where the target knows; other sources keep positions themselves."""


class Source(Protocol):
    """The end from which messages come."""

    async def open(self) -> Origin:
        """Connect."""

    async def begin(self, copied: Copied) -> None:
        """Begin after what was copied."""

    async def next_batch(self) -> list[Record] | None:
        """Return the next messages, an empty list now and then; None at the end.

        Cancelling loses none.
        """

    async def stored(self, records: list[Record]) -> None:
        """Settle messages: the target has them."""

    async def lag(self) -> int | None:
        """Return how many messages wait to be copied; None if the source does not say."""

    async def aclose(self) -> None:
        """Disconnect."""


class Target(Protocol):
    """The end to which messages go."""

    async def open(self, origin: Origin) -> Copied:
        """Connect, create it if it is missing, and return how far it has the source."""

    async def store(self, records: list[Record]) -> int:
        """Store messages and return how many of them it had already.

        Raises:
            MessageRefused: the target can never take one of them.
            LiftbridgeError: it is unknown which of them are stored, so all are copied again.
        """

    async def aclose(self) -> None:
        """Disconnect."""
