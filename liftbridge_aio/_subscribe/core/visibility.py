"""What a committed reading asks: which messages of a partition are shown, and where in it. Pure.

`transactions` answers it; readers get it by their plan, and import nothing of transactions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol, TypeAlias

from liftbridge_aio.model import Message

Shown: TypeAlias = tuple[int, Message]
"""A message that is shown, after its position: the offset of its ack, or its own without one.

Positions never step back from one shown message to the next, offsets may."""


class Replay(Protocol):
    """A part of the log that must be read again before what follows can be shown."""

    @property
    def begin(self) -> int:
        """The first offset to be read."""

    @property
    def end(self) -> int:
        """The offset behind the last one to be read: the position of what is shown."""

    def feed(self, message: Message) -> None:
        """Take the next message of the part."""

    def shown(self) -> list[Shown]:
        """Return what is shown, once the part was fed.

        Raises:
            LiftbridgeError: the part is not whole any more.
        """


class Visibility(Protocol):
    """Decides about the messages of one partition, from any offset on."""

    mark: bytes
    """What is in the bytes of each message that this decides about; all others are shown."""

    look_back: int
    """Offsets before a start that are read first, for `remember`."""

    def remember(self, message: Message) -> None:
        """Take a message before the start, which is not shown but may be repeated behind it."""

    def feed(self, message: Message, size: int) -> Iterator[Shown | Replay]:
        """Take the next message, of that many bytes; yield what it shows.

        Where a `Replay` is yielded, what it shows comes before the rest.

        Raises:
            LiftbridgeError: the message cannot be understood.
        """


MakeVisibility: TypeAlias = Callable[[], Visibility]
