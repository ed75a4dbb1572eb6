"""Calls the handler of `Queue.run` for each delivery, several concurrently."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import CoroutineType
from typing import Final, TypeAlias

from liftbridge_aio._core.foreign_cancellation import failure_of
from liftbridge_aio.groups.workers import Workers
from liftbridge_aio.handlers import intercepted
from liftbridge_aio.interceptors import Interceptor

from .batches import DeliveryT
from .core.attempt import AttemptState
from .delivery import Delivery
from .dispatcher import Dispatcher

DeliveryHandler: TypeAlias = Callable[[DeliveryT], Awaitable[object] | object]
"""A handler of deliveries: a coroutine function, which is awaited, or a plain function."""

_IN_FLIGHT: Final = AttemptState.IN_FLIGHT  # members are slow to look up


class DeliveryRunner(Workers):
    """A single run of a handler of deliveries.

    Args:
        group: the id of the group.
        dispatcher: provides deliveries.
        handler: the handler of the user.
        interceptors: wrap the handler; the first is the outermost.
        concurrency: the maximum of workers.
        cancels: cancel a handler that has not answered within ack_wait.
    """

    def __init__(
        self,
        group: str,
        dispatcher: Dispatcher,
        handler: DeliveryHandler[Delivery],
        interceptors: tuple[Interceptor, ...],
        *,
        concurrency: int,
        cancels: bool,
    ) -> None:
        super().__init__(group, dispatcher, concurrency)
        self._dispatcher = dispatcher
        self._handler = intercepted(handler, interceptors)
        self._cancels = cancels

    async def _take_turn(self) -> bool:
        next_ready, time, stopping = self._dispatcher.next_ready, self._loop.time, self._stopping
        delivery = next_ready()
        if delivery is None:
            return False
        task = asyncio.current_task() if self._cancels else None
        until = time() + self.TURN
        while delivery is not None:
            await self._handle(delivery, task)
            if stopping.is_set():
                break
            if time() >= until:
                await asyncio.sleep(0)
                break
            delivery = next_ready()
        return True

    async def _handle(self, delivery: Delivery, task: asyncio.Task[None] | None) -> None:
        delivery.worker = task
        try:
            answer = self._handler(delivery)
            # The first test is fast, and true for nearly all handlers.
            if type(answer) is CoroutineType or isinstance(answer, Awaitable):
                await answer
        except asyncio.CancelledError as error:
            if self._is_cancelled:
                raise
            self._cancelled(delivery, error)
        except Exception as error:  # noqa: BLE001 - reported, and the message is delivered again
            self._dispatcher.failed(delivery, error)
        else:
            if delivery.state is _IN_FLIGHT:
                delivery.answers.ack(delivery)
        finally:
            delivery.worker = None

    def _cancelled(self, delivery: Delivery, error: asyncio.CancelledError) -> None:
        """Continue after a handler was cancelled, usually because ack_wait was over."""
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            task.uncancel()
        if delivery.state is _IN_FLIGHT:  # something else has cancelled it
            self._dispatcher.failed(delivery, failure_of(error, "the handler"))
