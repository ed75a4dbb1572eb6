"""Handlers that run on a Liftbridge queue, NATS Streaming and NSQ alike.

    async def charge(delivery: Delivery) -> None:
        if not known(delivery.value):
            raise Reject("no such account")
        await store(delivery.value)

    await queue.run(charge)         # client.queue("orders", group="billing")
    await subscription.run(charge)  # stan.Client(...).subscribe("orders", durable="billing")
    await consumer.run(charge)      # nsq.Consumer("orders", "billing", ...)

A handler may raise `Nack` and `Reject`. What each system makes of answers is a table in
`docs/queues.md`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeAlias, TypeVar

from .interceptors import Interceptor, chained, checked_interceptors, processing
from .model import Message
from .options import Duration, seconds


class Nack(Exception):
    """Raise it in a handler to have the message delivered again.

    Args:
        reason: why; shown in the log and in the dead letter.
        delay: seconds before the next attempt; None: as `retry` of the queue says.
        backoff: count it as a failure, after which the queue slows down.
    """

    def __init__(
        self, reason: str = "", *, delay: Duration | None = None, backoff: bool = True
    ) -> None:
        super().__init__(reason)
        self.delay = None if delay is None else seconds(delay, "delay")
        self.backoff = backoff


class Reject(Exception):
    """Raise it in a handler to have the message given up without another attempt.

    Args:
        reason: why; shown in the log and in the dead letter.
    """


class Delivery(Protocol):
    """A message that was handed out, and the calls that answer it.

    `run` acks it when the handler returns, and nacks it when the handler raises an exception.
    """

    @property
    def message(self) -> Message:
        """The message, as interceptors get it."""

    @property
    def value(self) -> bytes:
        """The value that was published."""

    @property
    def attempt(self) -> int:
        """1 when it is delivered for the first time."""

    @property
    def redelivered(self) -> bool:
        """True if it was delivered before."""

    @property
    def settled(self) -> bool:
        """True once it was acked, nacked or rejected."""

    async def ack(self) -> None:
        """Settle the message: it is not delivered again."""

    async def nack(self, delay: Duration | None = None, *, backoff: bool = True) -> None:
        """Have the message delivered again."""

    async def reject(self, reason: str = "") -> None:
        """Give up the message without another attempt."""

    async def extend(self) -> None:
        """Begin the time for an answer again."""


DeliveryT = TypeVar("DeliveryT", bound=Delivery)
Handler: TypeAlias = Callable[[DeliveryT], Awaitable[object] | object]
"""A handler of deliveries: a coroutine function, which is awaited, or a plain function."""


def intercepted(
    handler: Handler[DeliveryT], interceptors: Sequence[Interceptor]
) -> Handler[DeliveryT]:
    """Wrap a handler in interceptors, of which the first is the outermost.

    Raises:
        WrongType: one of them is no interceptor.
    """
    wrappers = processing(checked_interceptors(interceptors))
    if not wrappers:
        return handler

    async def handle(delivery: DeliveryT) -> None:
        async def innermost(_: Message) -> None:
            answer = handler(delivery)
            if isinstance(answer, Awaitable):
                await answer

        await chained(wrappers, innermost)(delivery.message)

    return handle
