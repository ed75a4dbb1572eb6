"""Shares the bytes that may lie unread in this process among the subscriptions. Pure."""

from __future__ import annotations

from typing import Final

_WIDEST: Final = 4 * 2**20
_NARROWEST: Final = 4 * 2**10


class ReadBudget:
    """How much each subscription may hold.

    Unread bytes lie in two places: on the way, bounded by the flow-control window of the stream,
    and decoded in the subscription's buffer. Each gets half of a subscription's share. Shares
    change only when the number of subscriptions passes a power of two, so that windows are
    seldom renegotiated.
    """

    def __init__(self, total_bytes: int) -> None:
        self._total = total_bytes
        self._subscriptions = 0
        self._buffered = 0

    @property
    def subscriptions(self) -> int:
        """How many subscriptions share the budget."""
        return self._subscriptions

    @property
    def share(self) -> int:
        """Bytes for the window, and as many again for the buffer, of each subscription."""
        rounded = 1 << max(self._subscriptions - 1, 0).bit_length()
        return min(max(self._total // (2 * rounded), _NARROWEST), _WIDEST)

    @property
    def capacity(self) -> int:
        """Bytes that each subscription may hold in its buffer just now.

        Readers that came early hold what their larger share allowed; once half of the budget lies
        in buffers, nobody gets more than a message or two ahead.
        """
        return self.share if 2 * self._buffered < self._total else _NARROWEST

    def account(self, difference: int) -> None:
        """Count bytes that came into a buffer, or left it."""
        self._buffered += difference

    def join(self) -> bool:
        """Count one subscription more; tell whether the shares changed."""
        return self._change(1)

    def leave(self) -> bool:
        """Count one subscription less; tell whether the shares changed."""
        return self._change(-1)

    def _change(self, difference: int) -> bool:
        before = self.share
        self._subscriptions += difference
        return self.share != before
