"""Delivers messages that may have crashed a process one at a time, over all partitions.

After a crash the first messages of each partition are suspects, see `AckWindow`. While one is in
flight, no other message is, of any partition: otherwise it would be blamed for their crashes. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic

from .ack_window import AckWindow, AttemptT
from .attempt import AttemptState


class Suspects(Generic[AttemptT]):
    """The turns of suspects: one is in flight, or one is next, or all partitions deliver.

    Args:
        windows: returns the windows of all partitions.
    """

    def __init__(self, windows: Callable[[], Iterable[AckWindow[AttemptT]]]) -> None:
        self._windows = windows
        # State
        self.is_active = False
        """True while a suspect is in flight or next; a fast test for the dispatcher."""
        self.is_awaited = False
        """True once a partition waits for the end of a turn, until `end_turn`."""
        self._last: AttemptT | None = None
        """The last delivered suspect, until `end_turn` finds it answered."""
        self._next: AckWindow[AttemptT] | None = None
        """The partition of the next suspect; other partitions wait until it is in flight."""

    def must_wait(self, window: AckWindow[AttemptT]) -> bool:
        """Return True if a partition must not deliver now."""
        last, following = self._last, self._next
        if last is None and following is None and not window.suspects:
            return False
        if (last is not None and last.state is AttemptState.IN_FLIGHT) or (
            following is not None and following is not window
        ):
            self.is_awaited = True
        elif window.suspects and any(each.in_flight for each in self._windows()):
            self._next, self.is_awaited = window, True
            self.is_active = True
        else:
            return False
        return True

    def begin_turn(self, suspect: AttemptT) -> None:
        """Begin the turn of a suspect."""
        self._last, self._next = suspect, None
        self.is_active = True

    def cancel_turn(self, window: AckWindow[AttemptT]) -> None:
        """Cancel the turn of a partition that cannot deliver, or is released."""
        if self._next is window:
            self._next = None
            self.is_active = self._last is not None

    def end_turn(self) -> bool:
        """Return True, once, if waiting partitions may continue, as no suspect is in flight.

        Called after each answer and release.
        """
        if self._last is not None and self._last.state is not AttemptState.IN_FLIGHT:
            self._last = None
            self.is_active = self._next is not None
        if self._last is not None or not self.is_awaited:
            return False
        self.is_awaited = False
        return True
