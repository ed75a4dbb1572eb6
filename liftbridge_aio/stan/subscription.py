"""A subscription to a channel: an async context manager and an async iterator of messages."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from types import TracebackType
from typing import Self

from liftbridge_aio.errors import ConcurrentRead, LiftbridgeError, MalformedData
from liftbridge_aio.nats.library import Msg
from liftbridge_aio.nats.library import Subscription as Inbox
from liftbridge_aio.wire.stan_codec import ack_head, decode_message, encode_ack

from .errors import AckedAutomatically, SubscriptionClosed
from .message import Message
from .options import SubscriptionPlan
from .runtime import ClientRuntime

logger = logging.getLogger("liftbridge_aio.stan")


class Subscription:
    """A subscription to a channel, and an iterator of its messages.

    Use it inside `async with`; leaving the block closes it, and keeps a durable. Without
    `manual_ack` a message is acked when the next one is asked for, or when the block is left
    without an exception. Only one task may read at a time.

    Create one with `Client.subscribe`.
    """

    def __init__(self, plan: SubscriptionPlan, runtime: ClientRuntime) -> None:
        self.plan = plan
        self._runtime = runtime
        self._inbox: Inbox | None = None
        self._ack_inbox = ""
        self._ack_head = ack_head(plan.channel)
        self._ready: deque[Message] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._current: Message | None = None
        """The message that is acked when the next one is asked for."""
        self._open = False
        self._error: LiftbridgeError | None = None

    # Life

    async def __aenter__(self) -> Self:
        """Subscribe; see `open`."""
        await self.open()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close; see `aclose`."""
        if exc is None:
            self._ack_current()
        await self.aclose()

    async def open(self) -> None:
        """Subscribe, and wait for the server's answer. Cancelling leaves nothing behind."""
        if self._open:
            return
        link, session = self._runtime.link, self._runtime.session
        inbox = link.new_inbox()
        self._inbox = await link.listen(inbox, self._receive)
        try:
            self._ack_inbox = await session.subscribe(
                self.plan, inbox, self._runtime.request_timeout
            )
        except BaseException:
            await link.forget(self._inbox)
            raise
        self._open = True

    async def aclose(self) -> None:
        """Close the subscription; a durable stays."""
        await self._end(delete=False)

    async def unsubscribe(self) -> None:
        """End the subscription and delete its durable."""
        await self._end(delete=True)

    async def _end(self, *, delete: bool) -> None:
        if not self._open:
            return
        self._open = False
        self._wake()
        assert self._inbox is not None  # noqa: S101 - for mypy
        await self._runtime.link.forget(self._inbox)
        await self._runtime.session.end_subscription(
            self.plan, self._ack_inbox, self._runtime.request_timeout, delete=delete
        )

    # Messages

    def _receive(self, arrived: Msg) -> None:
        try:
            received = decode_message(arrived.data)
        except MalformedData as error:
            logger.warning("%s", error)
            return
        self._ready.append(Message(received, self))
        self._wake()

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def __aiter__(self) -> Self:
        """Return itself."""
        return self

    async def __anext__(self) -> Message:
        """Return the next message, and ack the one before unless `manual_ack`.

        Cancelling loses no message.

        Raises:
            ConcurrentRead: another task is waiting.
        """
        self._ack_current()
        while not self._ready:
            if not self._open:
                raise StopAsyncIteration
            await self._wait()
        message = self._ready.popleft()
        if not self.plan.manual_ack:
            self._current = message
        return message

    async def _wait(self) -> None:
        if self._waiter is not None:
            raise ConcurrentRead("another task is reading this subscription")
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    # Acks

    def _ack_current(self) -> None:
        message, self._current = self._current, None
        if message is not None and self._open:
            self._send_ack(message.sequence)

    def ack(self, message: Message) -> None:
        """Ack a message; see `Message.ack`."""
        if not self.plan.manual_ack:
            raise AckedAutomatically("the subscription acks messages itself")
        if not self._open:
            raise SubscriptionClosed("the subscription is closed")
        self._send_ack(message.sequence)

    def _send_ack(self, sequence: int) -> None:
        self._runtime.link.send(_AckOut(self._ack_inbox, encode_ack(self._ack_head, sequence)))


class _AckOut:
    def __init__(self, subject: str, payload: bytes) -> None:
        self._prepared = subject, payload, ""

    def prepare(self) -> tuple[str, bytes, str]:
        return self._prepared

    def failed(self, error: Exception) -> None:
        """Do nothing: the server delivers the message again."""
