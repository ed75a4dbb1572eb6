"""The tasks that call a handler: started on demand, up to a limit, and ended together."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from contextvars import copy_context
from typing import Any, ClassVar, Protocol

from liftbridge_aio._core.foreign_cancellation import failure_of
from liftbridge_aio._runtime.event_loop import begun_later

logger = logging.getLogger("liftbridge_aio.groups")


class WorkSource(Protocol):
    """The protocol of a source that rings a bell when there is something to be handled."""

    def share(self, bell: Workers) -> None:
        """Ring this bell, until `unshare`."""

    def unshare(self) -> None:
        """Ring it no more."""

    @property
    def is_finished(self) -> bool:
        """True if nothing more comes, but what there is now."""


class Workers(ABC):
    """A single run of a handler, by tasks that take turns until there are none left.

    Args:
        group: the id of the group.
        source: rings for each turn that may be taken.
        concurrency: the maximum of workers.
    """

    TURN: ClassVar = 0.01
    """Seconds after which a worker yields to others and to the event loop."""

    # State, changed only by methods of this class in the event loop: `_workers` are the tasks,
    # `_idle` has a future for each waiting worker, `_stopping` is set once.

    def __init__(self, group: str, source: WorkSource, concurrency: int) -> None:
        self._group = group
        self._source = source
        self._concurrency = concurrency
        self._error: BaseException | None = None
        self._stopping = asyncio.Event()
        self._workers: set[asyncio.Task[None]] = set()
        self._idle: list[asyncio.Future[None]] = []
        self._tasks: asyncio.TaskGroup | None = None
        self._task: asyncio.Task[Any] | None = None
        self._context = copy_context()
        self._loop = asyncio.get_running_loop()

    @abstractmethod
    async def _take_turn(self) -> bool:
        """Handle what comes next; return False, without waiting, if there is nothing."""

    @property
    def is_handlers_task(self) -> bool:
        """True if the current task is running the handler."""
        return asyncio.current_task() in self._workers

    @property
    def _is_cancelled(self) -> bool:
        """True if `run` was cancelled."""
        return self._task is not None and self._task.cancelling() > 0

    async def run(self) -> None:
        """Handle messages until `stop`, a failure, or the end of the group.

        Cancelling cancels the calls of the handler and waits until they have ended.

        Raises:
            ConcurrentRead: another task waits for messages.
            LiftbridgeError: a partition cannot be read.
            Exception: what the handler raised.
        """
        self._source.share(self)
        self._task = asyncio.current_task()
        try:
            async with asyncio.TaskGroup() as self._tasks:
                self.ring()
                try:
                    await self._stopping.wait()
                except asyncio.CancelledError:
                    self.stop()  # so that no worker is started in a group that is closing
                    raise
        except BaseExceptionGroup as failed:
            [error, *_] = failed.exceptions
            raise error from None
        finally:
            self._source.unshare()
        if self._error is not None:
            raise self._error

    @property
    def free(self) -> int:
        """The number of calls of the handler that could begin now."""
        if self._stopping.is_set():
            return 0
        return self._concurrency - len(self._workers) + len(self._idle)

    def stop(self) -> None:
        """Stop delivery; `run` returns when the calls of the handler have ended."""
        self._stopping.set()
        for waiter in self._idle:
            _wake(waiter)

    def ring(self) -> None:
        """Wake or start a worker, because there is something to handle, or the group has ended."""
        if self._idle:
            _wake(self._idle.pop())
        elif (
            len(self._workers) < self._concurrency
            and self._tasks is not None
            and not self._stopping.is_set()
        ):
            work = begun_later(self._work())
            worker = self._tasks.create_task(work, context=self._context.copy())
            self._workers.add(worker)
            worker.add_done_callback(self._workers.discard)

    async def _work(self) -> None:
        try:
            while not self._stopping.is_set():
                if await self._take_turn():
                    continue
                if self._source.is_finished:
                    self.stop()
                    break
                waiter = self._loop.create_future()
                self._idle.append(waiter)
                await waiter
        except BaseException as error:  # noqa: BLE001 - raised by `run`, or by its task group
            try:
                failure = failure_of(error, "a worker")
            except BaseException:
                self.stop()
                raise
            self._fail(failure)

    def _fail(self, error: Exception) -> None:
        if self._error is None:
            self._error = error
        else:
            logger.warning("the group %r failed again while it stopped: %r", self._group, error)
        self.stop()


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
