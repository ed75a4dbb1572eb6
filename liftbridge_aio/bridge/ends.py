"""The protocols of the two ends of a bridge, and the messages that they pass on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from liftbridge_aio.errors import LiftbridgeError
from liftbridge_aio.model import Message

SOURCE_HEADER: Final = "bridge-source"
"""Header with the source of a message, for example `stan/test-cluster/orders`."""
ID_HEADER: Final = "bridge-id"
"""Header with its id there: the sequence (NATS Streaming), or nsqd and id (NSQ)."""
TIME_HEADER: Final = "bridge-timestamp"
"""Header with the time at which it was published there, in Unix nanoseconds."""
MARKER_HEADER: Final = "bridge-marker"
"""Header of messages that a bridge adds: they have no value, and handlers skip them."""
TARGET_HEADER: Final = "bridge-target"
"""Header with the stream to which a bridge published; in others the headers were forwarded."""

MAX_BATCH: Final = 500
"""Messages that are copied at once."""


@dataclass(slots=True)
class Record:
    """A message on its way.

    Attributes:
        identity: its id in the source: what `ID_HEADER` has.
        value: what was published.
        timestamp: when, in Unix nanoseconds.
        origin: the message of the source's client.
        is_marker: True for a message that the target cannot take and the bridge skips.
    """

    identity: bytes
    value: bytes
    timestamp: int
    origin: Any
    is_marker: bool = False


def bridge_headers(message: Message) -> Mapping[str, bytes]:
    """Return the headers of a message that a bridge published, and none if it was forwarded.

    A handler that publishes with `headers=message.headers` forwards them to another stream, where
    they would say that the bridge has copied the message.
    """
    own = message.stream.encode()
    return message.headers if message.headers.get(TARGET_HEADER, own) == own else {}


Refuse: TypeAlias = Callable[[Record, LiftbridgeError], None]
"""Called by a target with a message that it can never take, and why; raises unless the bridge
skips such messages."""


class Copied(NamedTuple):
    """The progress of copying a channel of NATS Streaming; other sources keep that themselves."""

    sequence: int = 0
    """The sequence up to which the target has all."""
    timestamp: int | None = None
    """When that message was published, in Unix nanoseconds; None: the target does not tell."""


class Source(Protocol):
    """The end from which messages come."""

    async def open(self, copied: Copied) -> None:
        """Connect, and begin behind what was copied."""

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

    async def open(self) -> Copied:
        """Connect, create it if it is missing, and return how far it has the source."""

    async def store(self, records: list[Record]) -> int:
        """Store messages and return how many of them it had already.

        Raises:
            MessageRefused: the target can never take one of them.
            LiftbridgeError: it is unknown which of them are stored, so all are copied again.
        """

    async def aclose(self) -> None:
        """Disconnect."""
