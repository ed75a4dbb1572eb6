"""The transactions of the client."""

from __future__ import annotations

from typing import TYPE_CHECKING

from liftbridge_aio.model import AckPolicy
from liftbridge_aio.retry import Retry

from .base import ClientBase

if TYPE_CHECKING:
    from liftbridge_aio.transactions import Producer


class ClientTransactions(ClientBase):
    """Publishing exactly once."""

    def producer(
        self, *, ack_policy: AckPolicy = AckPolicy.ALL, retry: Retry | None = None
    ) -> Producer:
        """Return a producer, whose messages committed readings show once, or whole transactions.

        Args:
            ack_policy: when a message counts as stored. With LEADER what was committed may be lost
                when a leader fails; NONE is refused.
            retry: how messages and acks are sent again while their outcome is unknown; None is
                `Retry()`.

        Raises:
            InvalidRequest: the ack policy is NONE.
            ClientClosed: the client is closed.
            UsageError: the client is not connected.
        """
        parts = self._living
        from liftbridge_aio.transactions.producer import Producer  # noqa: PLC0415 - not before use

        return Producer(parts, ack_policy, Retry() if retry is None else retry)
