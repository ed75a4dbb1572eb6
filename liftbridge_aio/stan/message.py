"""A message of a channel, as a subscription delivers it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

from liftbridge_aio.wire.stan_codec import ReceivedMessage

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Message:
    """A message of a channel.

    Attributes:
        channel: the channel.
        sequence: its number in the channel, from 1 up.
        data: what was published.
        reply: the reply subject given by the publisher, or empty.
        timestamp: when the server received it, in Unix nanoseconds.
        redelivered: True if the server has delivered it before, to this or another subscriber.
        redelivery_count: how often it was delivered again; servers forget it when they restart.
    """

    __slots__ = (
        "_acker",
        "channel",
        "data",
        "redelivered",
        "redelivery_count",
        "reply",
        "sequence",
        "timestamp",
    )

    def __init__(self, received: ReceivedMessage, acker: Callable[[Message], None]) -> None:
        self.sequence = received.sequence
        self.channel = received.subject
        self.reply = received.reply
        self.data = received.data
        self.timestamp = received.timestamp
        self.redelivered = received.redelivered
        self.redelivery_count = received.redelivery_count if received.redelivered else 0
        self._acker = acker

    def __repr__(self) -> str:
        """Return channel, sequence and size."""
        again = f" redelivered={self.redelivery_count}" if self.redelivered else ""
        return f"<Message {self.channel!r} sequence={self.sequence}{again} {len(self.data)} bytes>"

    @property
    def time(self) -> datetime:
        """When the server received it, to the microsecond."""
        return _EPOCH + timedelta(microseconds=self.timestamp // 1000)

    async def ack(self) -> None:
        """Tell the server that the message is processed; for subscriptions with `manual_ack`.

        Returns once the ack is in the queue of what is sent: servers do not answer acks. One that
        is lost on the way makes the server deliver the message again. A second ack does nothing.
        Nothing is awaited, so cancelling does nothing.

        Raises:
            AckedAutomatically: the subscription acks its messages automatically.
            SubscriptionClosed: it is closed.
        """
        self._acker(self)
