"""Calls a handler for each delivery of a queue, for several concurrently."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import CoroutineType
from typing import Any, Final, TypeAlias

from liftbridge_aio.groups.handler_runner import wrapped
from liftbridge_aio.interceptors import Interceptor
from liftbridge_aio.model import Message

from .core.ack_window import AttemptState
from .delivery import Delivery
from .dispatcher import Dispatcher

DeliveryHandler: TypeAlias = Callable[[Delivery], Awaitable[object] | object]
"""A handler of deliveries: a coroutine function, which is awaited, or a plain function."""

_IN_FLIGHT: Final = AttemptState.IN_FLIGHT  # members are slow to look up
_TURN: Final = 0.01
"""Seconds after which a worker yields to the event loop."""


class HandlerPool:
    """A single run of a handler.

    Args:
        dispatcher: hands out deliveries.
        handler: the handler of the user.
        interceptors: wrap the handler; the first is the outermost.
        concurrency: the number of workers.
        cancels: cancel a call of the handler that has not answered within ack_wait.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        handler: DeliveryHandler,
        interceptors: tuple[Interceptor, ...],
        *,
        concurrency: int,
        cancels: bool,
    ) -> None:
        self._dispatcher = dispatcher
        self._handler = handler
        self._interceptors = interceptors
        self._concurrency = concurrency
        self._cancels = cancels
        self._stopping = False
        self._error: Exception | None = None
        self._workers: set[asyncio.Task[None]] = set()
        self._run_task: asyncio.Task[Any] | None = None
        self._loop = asyncio.get_running_loop()

    @property
    def is_handlers_task(self) -> bool:
        """True if the current task is running the handler."""
        return asyncio.current_task() in self._workers

    async def run(self) -> None:
        """Handle deliveries until `stop`, an error, or the end of the queue.

        Cancelling cancels the calls of the handler and waits until they have ended.

        Raises:
            LiftbridgeError: a partition cannot be read.
        """
        self._run_task = asyncio.current_task()
        async with asyncio.TaskGroup() as tasks:
            for _ in range(self._concurrency):
                worker = tasks.create_task(self._work())
                self._workers.add(worker)
                worker.add_done_callback(self._workers.discard)
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """Hand out nothing more; `run` returns when the calls of the handler have ended."""
        self._stopping = True
        self._dispatcher.wake_all()

    async def _work(self) -> None:
        dispatcher, time = self._dispatcher, self._loop.time
        task = asyncio.current_task() if self._cancels else None
        until = time() + _TURN
        try:
            while not self._stopping:
                delivery = dispatcher.next_ready()
                if delivery is None:
                    if dispatcher.is_over:
                        break
                    await dispatcher.wait()
                    until = time() + _TURN
                    continue
                await self._handle(delivery, task)
                if time() >= until:
                    await asyncio.sleep(0)
                    until = time() + _TURN
        except Exception as error:  # noqa: BLE001 - raised by `run`
            self._error = self._error or error
        finally:
            self.stop()

    async def _handle(self, delivery: Delivery, task: asyncio.Task[None] | None) -> None:
        delivery.worker = task
        try:
            answer = self._intercepted(delivery) if self._interceptors else self._handler(delivery)
            # The first of these is quick, and true of nearly all.
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
                self._dispatcher.ack(delivery)
        finally:
            delivery.worker = None

    def _cancelled(self, delivery: Delivery, error: asyncio.CancelledError) -> None:
        """Go on after a handler was cancelled, most often because it took too long."""
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            task.uncancel()
        if delivery.state is _IN_FLIGHT:  # it was not this queue that cancelled it
            self._dispatcher.failed(delivery, error)

    def _intercepted(self, delivery: Delivery) -> Awaitable[object] | object:
        def handle(_: Message) -> Awaitable[object] | object:
            return self._handler(delivery)

        return wrapped(handle, self._interceptors)(delivery.message)

    @property
    def _is_cancelled(self) -> bool:
        return self._run_task is not None and self._run_task.cancelling() > 0
