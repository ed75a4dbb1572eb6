"""How much the peer may send on one stream of the data lane: flow control (pure)."""

from __future__ import annotations

from typing import Final

_WIDEST: Final = 2**31 - 1
"""No window may be wider (RFC 9113, section 6.9.1)."""


class LaneCredit:
    """Flow control of one stream, by the rules of RFC 9113, sections 5.2 and 6.9.

    Credit goes back for what was drained, in bulk: when a quarter of the window is due, or when
    the message in progress needs it. A message that does not fit in the window gets an advance of
    no more than its own size, which later draining pays back before it brings credit again. So
    no more than the widest window and one message is ever undrained, however windows change.
    """

    __slots__ = ("_acknowledged", "_limit", "_pending", "bulk", "drained", "granted", "received")

    def __init__(self, window: int) -> None:
        self.received = 0
        """Bytes that came."""
        self.drained = 0
        """Bytes of those that need no room any more."""
        self.granted = 0
        """Credit that was written."""
        self.bulk = max(window >> 2, 1)
        """Credit that is worth a frame."""
        self._acknowledged = window
        self._pending: list[int] = []
        self._limit = window

    @property
    def window(self) -> int:
        """What our settings give the stream once the peer knows them."""
        return self._pending[-1] if self._pending else self._acknowledged

    @property
    def allowance(self) -> int:
        """Bytes that the peer may send once it knows everything; negative after a shrink."""
        return self.window + self.granted - self.received

    @property
    def exceeded(self) -> bool:
        """Whether more came than any window allowed that the peer may still have gone by."""
        return self.received - self.granted > self._limit

    def set_window(self, window: int) -> None:
        """Follow our own settings; the peer adjusts by the difference itself (section 6.9.2)."""
        if window != self.window:
            self._pending.append(window)
            self._limit = max(self._limit, window)
            self.bulk = max(window >> 2, 1)

    def window_acknowledged(self, window: int) -> None:
        """Judge the peer by this window from now on, unless newer ones are on their way to it."""
        if self._pending and self._pending[0] == window:
            self._acknowledged = self._pending.pop(0)
            self._limit = max(self._acknowledged, *self._pending, 0)

    def due(self, begun: int, missing: int) -> int:
        """Credit that should be written now.

        Args:
            begun: bytes of the message in progress that are here.
            missing: bytes that it lacks; 0 between messages.
        """
        owed = self.drained - self.granted
        if missing:
            shortage = missing - self.allowance
            if 0 < shortage <= owed + begun + missing:
                return min(max(owed, shortage), self._room)
        return owed if owed >= self.bulk else 0

    @property
    def _room(self) -> int:
        """Credit that makes no window too wide that the peer may still go by."""
        return max(_WIDEST - self._limit - self.granted + self.received, 0)
