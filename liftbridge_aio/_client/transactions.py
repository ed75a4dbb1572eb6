"""The transactions of the client."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from liftbridge_aio._core.arguments import check_type
from liftbridge_aio.errors import InvalidRequest
from liftbridge_aio.model import AckPolicy
from liftbridge_aio.retry import Retry

from .base import ClientBase

if TYPE_CHECKING:
    from liftbridge_aio.transactions import CheckpointStream, Producer
    from liftbridge_aio.transactions.claimed_log import LogClient


class ClientTransactions(ClientBase):
    """Publishing exactly once."""

    def producer(
        self,
        name: str | None = None,
        *,
        store: CheckpointStream | None = None,
        ack_policy: AckPolicy = AckPolicy.ALL,
        retry: Retry | None = None,
    ) -> Producer:
        """Return a producer, whose messages committed readings show once, or whole transactions.

        Without a store transactions are atomic unless the process dies while they are committed.
        With one they are atomic all the same, and take read positions along.

        Args:
            name: of a producer with a store; there is one at a time.
            store: keeps what the next producer of the name must know, a
                `transactions.CheckpointStream`.
            ack_policy: when a message counts as stored. With LEADER what was committed may be lost
                when a leader fails; NONE is refused.
            retry: how messages and acks are sent again while their outcome is unknown; None is
                `Retry()`.

        Raises:
            InvalidRequest: the ack policy is NONE, or a name without a store or the reverse.
            ClientClosed: the client is closed.
            UsageError: the client is not connected.
        """
        parts = self._living
        from liftbridge_aio.transactions import CheckpointStream, Producer  # noqa: PLC0415 - not before use
        from liftbridge_aio.transactions.producer import NamedStore  # noqa: PLC0415 - not before use

        named = None
        check_type(store, (CheckpointStream, type(None)), "store is a CheckpointStream")
        if (name is None) is not (store is None):
            raise InvalidRequest("a producer with a store has a name, and one without has none")
        if name is not None and store is not None:
            store.stream_of(name)
            named = NamedStore(cast("LogClient", self), store, name)
        return Producer(parts, ack_policy, Retry() if retry is None else retry, named)
