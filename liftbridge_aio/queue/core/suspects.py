"""Lets messages that may have ended a process be in flight alone, over all partitions.

Pure. After a crash the first messages of each partition are suspects, see `AckWindow`. One that was
in flight with others would be blamed for what those do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic

from .ack_window import AckWindow, AttemptT
from .attempt import AttemptState


class Suspects(Generic[AttemptT]):
    """Whose turn it is: that of the suspect in flight, or of the next one, or of all.

    Args:
        windows: returns those of all partitions.
    """

    def __init__(self, windows: Callable[[], Iterable[AckWindow[AttemptT]]]) -> None:
        self._windows = windows
        self.is_active = False
        """True if there is a turn to wait for."""
        self.is_awaited = False
        """True if a partition waits for the end of a turn; see `end_turn`."""
        self._last: AttemptT | None = None
        """The suspect that was handed out last."""
        self._next: AckWindow[AttemptT] | None = None
        """The partition of the next one: the others wait until that is in flight."""

    def must_wait(self, window: AckWindow[AttemptT]) -> bool:
        """Return True if a partition must not hand out anything now."""
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

    def handed_out(self, suspect: AttemptT) -> None:
        """Begin the turn of a suspect."""
        self._last, self._next = suspect, None
        self.is_active = True

    def pass_over(self, window: AckWindow[AttemptT]) -> None:
        """End the turn of a partition that hands out nothing, or is released."""
        if self._next is window:
            self._next = None
            self.is_active = self._last is not None

    def end_turn(self) -> bool:
        """Return True, once, if partitions that waited may go on, as no suspect is in flight.

        To be called when something was answered or released.
        """
        if self._last is not None and self._last.state is not AttemptState.IN_FLIGHT:
            self._last = None
            self.is_active = self._next is not None
        if self._last is not None or not self.is_awaited:
            return False
        self.is_awaited = False
        return True
