"""A message of a channel, as a subscription delivers it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

from liftbridge_aio import model
from liftbridge_aio.options import Duration
from liftbridge_aio.wire.stan_codec import ReceivedMessage

from .errors import NotSupported, SubscriptionClosed

logger = logging.getLogger("liftbridge_aio.stan")

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Message:
    """A message of a channel; it is a `liftbridge_aio.handlers.Delivery`, too.

    Attributes:
        sequence: its number in the channel, from 1 up.
        timestamp: when the server received it, in Unix nanoseconds.
        settled: True once it was acked, nacked or rejected by a call.
    """

    __slots__ = ("_acker", "_received", "sequence", "settled", "timestamp")

    def __init__(self, received: ReceivedMessage, acker: Callable[[Message], bool]) -> None:
        self._received = received  # fields cost as much to read here as all else
        self.sequence = received.sequence
        self.timestamp = received.timestamp
        self.settled = False
        self._acker = acker

    def __repr__(self) -> str:
        """Return channel, sequence and size."""
        again = f" redelivered={self.redelivery_count}" if self.redelivered else ""
        return f"<Message {self.channel!r} sequence={self.sequence}{again} {len(self.data)} bytes>"

    @property
    def channel(self) -> str:
        """The channel."""
        return self._received.subject

    @property
    def data(self) -> bytes:
        """The bytes that were published."""
        return self._received.data

    @property
    def reply(self) -> str:
        """The reply subject given by the publisher, or empty."""
        return self._received.reply

    @property
    def redelivered(self) -> bool:
        """True if the server has delivered it before, to this or another subscriber."""
        return self._received.redelivered

    @property
    def redelivery_count(self) -> int:
        """The number of times it was delivered again; servers forget it when they restart."""
        return self._received.redelivery_count if self._received.redelivered else 0

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
        if not self._acker(self):
            raise SubscriptionClosed("the subscription is closed")
        self.settled = True

    def let_ack(self, acker: Callable[[Message], bool]) -> None:
        """Let its handler ack it, although the subscription acks automatically."""
        self._acker = acker

    # As a delivery

    @property
    def value(self) -> bytes:
        """The value that was published: `data`."""
        return self.data

    @property
    def attempt(self) -> int:
        """1 when it is delivered for the first time; servers forget it when they restart."""
        return self.redelivery_count + 1

    @property
    def message(self) -> model.Message:
        """The message as interceptors get it; its offset is the sequence."""
        return model.Message(
            stream=self.channel,
            partition=0,
            offset=self.sequence,
            key=b"",
            value=self.data,
            timestamp=self.timestamp,
            subject=self.channel,
            reply_subject=self.reply,
        )

    async def nack(
        self,
        delay: Duration | None = None,
        *,
        backoff: bool = True,  # noqa: ARG002 - as queues take it
    ) -> None:
        """Leave the message unacked: the server delivers it again after `ack_wait`.

        Nothing is sent or awaited, so cancelling does nothing.

        Args:
            delay: must be None.
            backoff: has no effect.

        Raises:
            NotSupported: a delay is given; the protocol has none.
        """
        if delay is not None:
            raise NotSupported(
                "NATS Streaming delivers again after ack_wait, and after no other delay"
            )
        self.settled = True

    async def reject(self, reason: str = "") -> None:
        """Give up the message: it is logged as an error and acked, as there are no dead letters.

        Nothing is awaited, so cancelling does nothing.

        Raises:
            AckedAutomatically: the subscription acks its messages automatically, outside of `run`.
            SubscriptionClosed: it is closed.
        """
        await self.ack()
        logger.error("gave up %s, so it is discarded: %s", repr(self), reason)

    async def extend(self) -> None:
        """Raise an error: the protocol has no such request. Nothing is awaited.

        Raises:
            NotSupported: always.
        """
        raise NotSupported("NATS Streaming cannot extend the time for an ack; raise ack_wait")
