"""`Message`: a delivery of nsqd, which is finished or requeued."""

from __future__ import annotations

from typing import Protocol

from liftbridge_aio import model
from liftbridge_aio._core.foreign_text import shown
from liftbridge_aio.options import Duration, seconds

from .connection import NsqConnection


class Answerer(Protocol):
    """The consumer of a message, which sends its answer."""

    topic: str

    async def reject(self, message: Message, reason: str) -> None:
        """Give up a message and send FIN."""

    async def finish(self, message: Message) -> None:
        """Send FIN."""

    async def requeue(self, message: Message, delay: float | None, *, backoff: bool) -> None:
        """Send REQ."""

    async def touch(self, message: Message) -> None:
        """Send TOUCH."""


class Message:
    """A message as nsqd delivers it. Answer it once: `finish` or `requeue`.

    It is a `liftbridge_aio.handlers.Delivery`, too, whose `ack`, `nack` and `extend` are `finish`,
    `requeue` and `touch`.

    Attributes:
        body: what was published.
        id: 16 hexadecimal digits, the same at each attempt.
        attempts: deliveries so far, this one included.
        timestamp: Unix nanoseconds at which nsqd received it.
        deadline: time of the event loop at which nsqd delivers it again, unless it is answered or
            touched before; infinite where nsqd did not say how long that is.
        is_answered: True once it was finished or requeued.
    """

    __slots__ = (
        "_consumer",
        "attempts",
        "body",
        "connection",
        "deadline",
        "id",
        "is_answered",
        "timestamp",
    )

    def __init__(
        self,
        consumer: Answerer,
        connection: NsqConnection,
        content: tuple[int, int, bytes, bytes],
        deadline: float,
    ) -> None:
        self._consumer = consumer
        self.connection = connection
        self.timestamp, self.attempts, self.id, self.body = content
        self.deadline = deadline
        self.is_answered = False

    @property
    def address(self) -> str:
        """The nsqd that it comes from."""
        return self.connection.address

    def __repr__(self) -> str:
        """Show id and attempts; a body may be large or secret."""
        return f"<Message {shown(self.id)} of {self.address}, attempt {self.attempts}>"

    async def finish(self) -> None:
        """Tell nsqd that the message is handled (FIN).

        NSQ does not confirm it. If the message is not in flight any more because its time was up,
        nsqd delivers it again, and the consumer logs that. Cancelling leaves it sent.

        Raises:
            AlreadyAnswered: it was answered before.
            NotInFlight: its connection has ended, so it is delivered again.
        """
        await self._consumer.finish(self)

    async def requeue(self, delay: Duration | None = None, *, backoff: bool = True) -> None:
        """Tell nsqd to deliver the message again (REQ).

        Cancelling leaves it sent.

        Args:
            delay: before the next delivery, in seconds; nsqd shortens it to its limit. None: the
                consumer's `requeue_delay` times the attempts.
            backoff: count it as a failure, after which the consumer slows down.

        Raises:
            AlreadyAnswered: it was answered before.
            NotInFlight: its connection has ended, so it is delivered again.
        """
        wanted = None if delay is None else seconds(delay, "delay")
        await self._consumer.requeue(self, wanted, backoff=backoff)

    async def touch(self) -> None:
        """Begin the message's time again, up to nsqd's limit (15 minutes by default).

        Cancelling leaves it sent.

        Raises:
            AlreadyAnswered: it was answered before.
            NotInFlight: its connection has ended, so it is delivered again.
        """
        await self._consumer.touch(self)

    # As a delivery

    @property
    def value(self) -> bytes:
        """The value that was published: `body`."""
        return self.body

    @property
    def attempt(self) -> int:
        """1 when it is delivered for the first time: `attempts`."""
        return self.attempts

    @property
    def redelivered(self) -> bool:
        """True if it was delivered before."""
        return self.attempts > 1

    @property
    def settled(self) -> bool:
        """True once it was finished, requeued or rejected: `is_answered`."""
        return self.is_answered

    @property
    def message(self) -> model.Message:
        """The message as interceptors get it; its offset is -1, as NSQ has none."""
        return model.Message(
            stream=self._consumer.topic,
            partition=0,
            offset=-1,
            key=b"",
            value=self.body,
            timestamp=self.timestamp,
        )

    async def ack(self) -> None:
        """Finish the message; see `finish`. Cancelling leaves it sent."""
        await self._consumer.finish(self)

    async def nack(self, delay: Duration | None = None, *, backoff: bool = True) -> None:
        """Requeue the message; see `requeue`. Cancelling leaves it sent."""
        await self.requeue(delay, backoff=backoff)

    async def reject(self, reason: str = "") -> None:
        """Give up the message: call `on_giving_up` of the consumer, or log an error, and finish it.

        Cancelling `on_giving_up` leaves it unanswered.

        Raises:
            AlreadyAnswered: it was answered before.
            NotInFlight: its connection has ended, so it is delivered again.
            Exception: what `on_giving_up` raised; the message is not finished.
        """
        await self._consumer.reject(self, reason)

    async def extend(self) -> None:
        """Begin the message's time again; see `touch`. Cancelling leaves it sent."""
        await self._consumer.touch(self)
