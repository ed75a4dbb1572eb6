"""A message of a channel, as a subscription delivers it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from liftbridge_aio.wire.stan_codec import ReceivedMessage

if TYPE_CHECKING:
    from .subscription import Subscription

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Message:
    """A message of a channel."""

    __slots__ = (
        "_subscription",
        "channel",
        "data",
        "redelivered",
        "redelivery_count",
        "reply",
        "sequence",
        "timestamp",
    )

    def __init__(self, received: ReceivedMessage, subscription: Subscription) -> None:
        (
            self.sequence,
            self.channel,
            self.reply,
            self.data,
            self.timestamp,
            self.redelivered,
            self.redelivery_count,
        ) = received
        self._subscription = subscription

    def __repr__(self) -> str:
        """Return channel, sequence and size."""
        again = f" redelivered {self.redelivery_count}x" if self.redelivered else ""
        return f"<Message {self.channel}:{self.sequence}{again} {len(self.data)} bytes>"

    @property
    def time(self) -> datetime:
        """When the server received it."""
        return _EPOCH + timedelta(microseconds=self.timestamp // 1000)

    async def ack(self) -> None:
        """Tell the server that the message is processed; needs `manual_ack`.

        The ack is put in the queue of what is sent, and this does not wait for more: servers do not
        answer acks. One that is lost on the way lets the server deliver the message again. A second
        ack does nothing. Cancelling does nothing, as nothing is awaited.

        Raises:
            AckedAutomatically: the subscription acks messages itself.
            SubscriptionClosed: it is closed.
            ClientClosed: the client is closed.
        """
        self._subscription.ack(self)
