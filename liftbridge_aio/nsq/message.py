"""`Message`: a delivery of nsqd, which is finished or requeued."""

from __future__ import annotations

from typing import Protocol

from liftbridge_aio.options import Duration, seconds

from .connection import NsqConnection


class Answerer(Protocol):
    """The consumer of a message, which sends its answer."""

    async def finish(self, message: Message) -> None:
        """Send FIN."""

    async def requeue(self, message: Message, delay: float | None, *, backoff: bool) -> None:
        """Send REQ."""

    async def touch(self, message: Message) -> None:
        """Send TOUCH."""


class Message:
    """A message as nsqd delivers it. Answer it once: `finish` or `requeue`.

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
        return f"<Message {self.id.decode()} of {self.address}, attempt {self.attempts}>"

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
