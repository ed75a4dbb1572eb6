"""The unsettled messages of a partition that is read committed, in the order of commits.

The position of a message is the offset of the ack that commits its transaction; several messages
may share it. Other messages have their offsets as positions. Positions never decrease, offsets may.
Pure.
"""

from __future__ import annotations

from collections.abc import Callable

from liftbridge_aio.model import Message

from .ack_window import AckWindow, AttemptT, Snapshot, WindowSettings


class CommittedWindow(AckWindow[AttemptT]):
    """An `AckWindow` by positions; `move_to` sets the position of the next message.

    Args:
        settings: the settings.
        make: makes an attempt.
        snapshot: as for `AckWindow`.
        suspects: as for `AckWindow`.
    """

    def __init__(
        self,
        settings: WindowSettings,
        make: Callable[[Message], AttemptT],
        snapshot: Snapshot | None = None,
        suspects: int = 0,
    ) -> None:
        super().__init__(settings, make, snapshot, suspects)
        # State
        self._position = -1
        """The position of the next message, set by `move_to`."""
        self._is_last = True
        """True if it is the last message with this position."""
        self._positions = {} if snapshot is None else dict(snapshot.positions)
        """Positions of unsettled messages by offset, where they differ."""
        self._taken: set[int] = set()
        """Offsets of messages taken at position `_next`, while more may follow there."""
        self._settled = frozenset[int]() if snapshot is None else snapshot.settled
        """Offsets that a former owner has settled at position `_known_below`."""

    def _position_of(self, offset: int) -> int:
        return self._positions.get(offset, offset)

    @property
    def base(self) -> int | None:
        """The position of the first unsettled message; None before the first message."""
        first = next(iter(self._unsettled), None)
        return self._next if first is None else self._position_of(first)

    def move_to(self, position: int, *, is_last: bool) -> None:
        """Set the position of the message that is taken next.

        Args:
            position: the offset of the ack that commits it, or its own offset.
            is_last: no other message with this position follows.
        """
        self._position, self._is_last = position, is_last

    def take(self, message: Message, now: float) -> AttemptT | None:
        """Implement `AckWindow`."""
        attempts = self._attempts_before(message)
        if attempts is None:
            return None
        if self._position != message.offset:
            self._positions[message.offset] = self._position
        return self._begin(message, attempts, now)

    def skip(self, message: Message) -> None:
        """Implement `AckWindow`."""
        self._attempts_before(message)
        self.changes += 1

    def _attempts_before(self, message: Message) -> int | None:
        """Advance to a message; return its attempts so far, None if it is not delivered."""
        position, offset = self._position, message.offset
        if self._next is not None and position < self._next:
            return None  # a repeat
        if position != self._next:
            self._taken.clear()
        elif offset in self._taken:
            return None
        self._next = position
        self._taken.add(offset)
        if self._is_last:
            self._next = position + 1
            self._taken.clear()
        if offset in self._known:
            return self._known.pop(offset)
        is_settled = position < self._known_below or offset in self._settled
        return None if is_settled else 0

    def ack(self, attempt: AttemptT, *, holds_key: bool = False) -> None:
        """Implement `AckWindow`."""
        super().ack(attempt, holds_key=holds_key)
        self._positions.pop(attempt.offset, None)

    def give_up(self, attempt: AttemptT) -> None:
        """Implement `AckWindow`."""
        super().give_up(attempt)
        if attempt.offset not in self._unsettled:
            self._positions.pop(attempt.offset, None)

    def _snapshot(self, following: int, unsettled: dict[int, int]) -> Snapshot:
        positions = {
            offset: self._positions[offset] for offset in unsettled if offset in self._positions
        }
        settled = frozenset(self._taken) - self._unsettled.keys()
        if following == self._known_below:
            settled = self._settled if self._next != following else self._settled | settled
        return Snapshot(following, unsettled, positions, settled)
