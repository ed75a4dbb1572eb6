"""The interface by which committed readings ask what is shown of a partition. Pure.

The rule is in `transactions.core.visibility`; readers get it by their plan, and import nothing of
transactions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias

from liftbridge_aio.model import Message

if TYPE_CHECKING:  # what imports protobuf is imported when something is read
    from liftbridge_aio.wire.columns import Mark
    from liftbridge_aio.wire.raw_message import RawMessage

Shown: TypeAlias = tuple[Sequence[int], Sequence[bytes]]
"""Messages that are shown, encoded, after their positions: that of a message is the offset of its
ack, or its own without one.

Positions never step back from one shown message to the next, offsets may."""


class Replay(Protocol):
    """A part of the log that must be read again before what follows can be shown."""

    @property
    def begin(self) -> int:
        """The first offset to be read."""

    @property
    def end(self) -> int:
        """The offset behind the last one to be read: the position of what is shown."""

    def feed(self, message: RawMessage) -> None:
        """Take the next message of the part."""

    def shown(self) -> Shown:
        """Return what is shown, once the part was fed.

        Raises:
            LiftbridgeError: the part is not whole any more.
        """


class Visibility(Protocol):
    """Decides about the messages of one partition, from any offset on."""

    look_back: int
    """Offsets before a start that are read first, for `remember`."""

    def before(self, undelivered: Iterable[Message]) -> tuple[tuple[bytes, int], ...]:
        """Return what was known of producers before these messages, the last that were shown."""

    def resume(self, producers: Iterable[tuple[bytes, int]], position: int, delivered: int) -> None:
        """Go on where another one stood, before the first message.

        Args:
            producers: from `before`.
            position: of the next message.
            delivered: how many messages of this position are not shown again.
        """

    def remember(self, message: RawMessage) -> None:
        """Take a message before the start, which is not shown but may be repeated behind it."""

    def feed(
        self, offsets: Sequence[int], data: Sequence[bytes], marks: Sequence[Mark]
    ) -> Iterator[Shown | Replay]:
        """Take the next messages, encoded, with their offsets and marks; yield what they show.

        Where a `Replay` is yielded, what it shows comes before the rest.

        Raises:
            LiftbridgeError: the message at its offset cannot be understood.
        """


MakeVisibility: TypeAlias = Callable[[], Visibility]
