"""Shares the bytes that may lie unread in this process among the subscriptions. Pure."""

from __future__ import annotations

from typing import Final

_WIDEST: Final = 4 * 2**20
_NARROWEST: Final = 4 * 2**10


class ReadBudget:
    """How much each subscription may hold unread.

    A subscription's share is the flow-control window of its stream, so it bounds what the server
    may send ahead of the user. On the data lane that is the only place where unread bytes lie. On
    the plain path there are two, the window and the subscription's buffer, so shares are half as
    large. Together the shares take half of the budget; the other half is for what messages cost
    beside their bytes, which for small ones is as much again, and for what is left unread from
    before a break.

    Shares change when the number of subscriptions passes a power of two, so windows are seldom
    renegotiated, and when the budget becomes crowded or has room again. It is crowded once three
    quarters are taken, messages counted with what they cost beside their bytes: readers that came
    early may hold what their larger share allowed. Nobody gets more than a few KiB ahead then,
    until half is free; that is enough to starve nobody.

    Args:
        total_bytes: what all subscriptions together may hold.
        places: where unread bytes of a subscription lie: 1 on the data lane, 2 on the plain path.
    """

    def __init__(self, total_bytes: int, *, places: int = 1) -> None:
        self._total = total_bytes
        self._places = places
        self._subscriptions = 0
        self._held = 0
        self._crowded = False
        self.share = 0
        """Bytes that each subscription may hold in each place just now."""
        self._change(0)

    @property
    def subscriptions(self) -> int:
        """How many subscriptions share the budget."""
        return self._subscriptions

    def account(self, difference: int) -> bool:
        """Count bytes that came to a subscription, or left it; tell whether the shares changed."""
        self._held += difference * self._places
        if self._crowded:
            crowded = 2 * self._held > self._total
        else:
            crowded = 4 * self._held >= 3 * self._total
        if crowded is self._crowded:
            return False
        self._crowded = crowded
        return self._change(0)

    def join(self) -> bool:
        """Count one subscription more; tell whether the shares changed."""
        return self._change(1)

    def leave(self) -> bool:
        """Count one subscription less; tell whether the shares changed."""
        return self._change(-1)

    def _change(self, difference: int) -> bool:
        before = self.share
        self._subscriptions += difference
        rounded = 1 << max(self._subscriptions - 1, 0).bit_length()
        fair = self._total // (2 * self._places * rounded)
        self.share = _NARROWEST if self._crowded else min(max(fair, _NARROWEST), _WIDEST)
        return self.share != before
