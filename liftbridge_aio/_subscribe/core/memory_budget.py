"""Divides the memory for unread messages among the subscriptions. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from liftbridge_aio.telemetry import SubscriptionStatistics

_WIDEST: Final = 4 * 2**20
_NARROWEST: Final = 4 * 2**10


class Reader(Protocol):
    """A reader of one partition, which holds unread bytes."""

    def statistics(self) -> SubscriptionStatistics:
        """Return what it reads, and its position."""
        ...


class MemoryBudget:
    """The bytes that each subscription may hold unread.

    A subscription's share is the flow-control window of its HTTP/2 stream, so it bounds what the
    server may send ahead of the user. On the data lane, unread bytes are only in the subscription's
    buffer. On the plain path they are in grpclib's buffer too, so shares are half as large.
    Together the shares take half of the budget; the other half is for the overhead of messages,
    which for small ones is as much again, and for what is left unread from before a break.

    Shares change when the number of subscriptions passes a power of two, so windows are seldom
    renegotiated, and when the budget becomes crowded or is so no more. It is crowded once three
    quarters are used, overhead included: readers that joined early may hold what their larger share
    allowed. Then each gets a few KiB only, enough to make progress, until half is free.

    Args:
        total_bytes: what all subscriptions together may hold.
        places: buffers that hold unread bytes: 1 on the data lane, 2 on the plain path.
    """

    def __init__(self, total_bytes: int, *, places: int = 1) -> None:
        self._total = total_bytes
        self._places = places
        self._readers: dict[Reader, None] = {}
        self._held = 0
        self._crowded = False
        self.share = 0
        """Bytes that each subscription may hold in each of its buffers now."""
        self._change()

    @property
    def readers(self) -> tuple[Reader, ...]:
        """The readers that share the budget, in the order in which they joined."""
        return tuple(self._readers)

    def account(self, difference: int) -> bool:
        """Add a change of the bytes held; return True if the shares changed."""
        self._held += difference * self._places
        if self._crowded:
            crowded = 2 * self._held > self._total
        else:
            crowded = 4 * self._held >= 3 * self._total
        if crowded is self._crowded:
            return False
        self._crowded = crowded
        return self._change()

    def join(self, reader: Reader) -> bool:
        """Add a reader; return True if the shares changed."""
        self._readers[reader] = None
        return self._change()

    def leave(self, reader: Reader) -> bool:
        """Remove a reader, if it is among them; return True if the shares changed."""
        self._readers.pop(reader, None)
        return self._change()

    def _change(self) -> bool:
        before = self.share
        rounded = 1 << max(len(self._readers) - 1, 0).bit_length()
        fair = self._total // (2 * self._places * rounded)
        self.share = _NARROWEST if self._crowded else min(max(fair, _NARROWEST), _WIDEST)
        return self.share != before
