"""Who takes what comes on a call, message by message or many at once, without a task of its own."""

from __future__ import annotations

from typing import Protocol

from liftbridge_aio.status import CallFailure


class Receiver(Protocol):
    """Takes what comes on a call. Called by the event loop; neither method may wait or raise."""

    @property
    def full(self) -> bool:
        """Whether more should wait. Only the plain path asks: the lane has flow control for it."""

    def received(self, messages: list[bytes]) -> None:
        """Take the next messages, in order; the list is the receiver's to keep."""

    def ended(self, failure: CallFailure) -> None:
        """Take note that nothing more comes, once. `Code.OK`: the server ended the call."""
