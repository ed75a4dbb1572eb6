"""Calls a handler for each message of a subscription."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Literal, TypeAlias

from liftbridge_aio._core.foreign_cancellation import failure_of
from liftbridge_aio.errors import LiftbridgeError
from liftbridge_aio.handlers import Handler, Nack, Reject

from .deliveries import Deliveries
from .events import Event, HandlerFailed
from .message import Message

logger = logging.getLogger("liftbridge_aio.stan")

MessageHandler: TypeAlias = Handler[Message]
"""A handler of messages: a coroutine function, which is awaited, or a plain function."""
OnError: TypeAlias = Literal["redeliver", "stop"]


class HandlerRunner:
    """A single run of a handler by several workers, each a task with one message at a time.

    Args:
        deliveries: has the messages.
        tell: is told of each failure of the handler.
        handler: the handler of the user.
        acks: True to ack a message when its handler has returned.
        stops: True to end the run with the first failure.
    """

    def __init__(
        self,
        deliveries: Deliveries,
        tell: Callable[[Event], None],
        handler: MessageHandler,
        *,
        acks: bool,
        stops: bool,
    ) -> None:
        self._deliveries = deliveries
        self._tell = tell
        self._handler = handler
        self._acks = acks
        self._stops = stops
        self._stopping = False
        self._error: BaseException | None = None

    async def run(self, concurrency: int) -> None:
        """Handle messages until `stop`, the end of the subscription or, if it stops, a failure.

        Cancelling cancels the calls of the handler and waits until they have ended.

        Raises:
            LiftbridgeError: the subscription has failed.
            BaseException: what the handler raised.
        """
        async with asyncio.TaskGroup() as group:
            for _ in range(concurrency):
                group.create_task(self._work())
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """Take no further message; `run` returns when the calls of the handler have ended."""
        self._stopping = True
        self._deliveries.wake_all()

    async def _work(self) -> None:
        try:
            while (message := await self._deliveries.take(lambda: self._stopping)) is not None:
                await self._handle(message)
        except LiftbridgeError as error:
            self._end(error)

    async def _handle(self, message: Message) -> None:
        if self._acks:
            message.let_ack(self._deliveries.ack)
        try:
            answer = self._handler(message)
            if isinstance(answer, Awaitable):
                await answer
        except asyncio.CancelledError as error:
            self._failed(message, failure_of(error, "the handler"))
        except Reject as rejection:
            if not message.settled:
                await message.reject(str(rejection))
        except Exception as error:  # noqa: BLE001 - told, and raised by `run` if wanted
            self._failed(message, error)
        else:
            if self._acks and not message.settled:
                self._deliveries.ack(message)

    def _failed(self, message: Message, error: Exception) -> None:
        self._tell(HandlerFailed(message, error))
        where = f"message {message.sequence} of {message.channel!r}"
        if isinstance(error, Nack):
            logger.info("the handler of %s has nacked it: %s", where, error)
        elif self._stops:
            error.add_note(f"raised by the handler of {where}")
            self._end(error)
        else:
            logger.warning("the handler of %s failed: %r", where, error, exc_info=error)

    def _end(self, error: BaseException) -> None:
        self._error = self._error or error
        self.stop()
