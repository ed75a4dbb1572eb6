"""Calls a handler for each message of a member, for several partitions concurrently."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from typing import Any, Final, Literal, TypeAlias

from liftbridge_aio._subscribe.partition_reader import PartitionReader
from liftbridge_aio.errors import GroupError
from liftbridge_aio.interceptors import Interceptor, chained
from liftbridge_aio.model import Message, StreamPartition
from liftbridge_aio.telemetry import HandlerFailed

from .group_readers import GroupReaders

logger = logging.getLogger("liftbridge_aio.groups")

MessageHandler: TypeAlias = Callable[[Message], Awaitable[object] | object]
"""A handler of messages: a coroutine function, which is awaited, or a plain function."""
OnError: TypeAlias = Literal["stop", "skip"]

_TURN: Final = 0.01
"""Seconds after which a worker yields to waiting partitions and to the event loop."""


class HandlerRunner:
    """A single run of a handler.

    A worker is a task that takes the turn of a partition, handles its messages sequentially until
    none is left or the turn is over, and then takes the next turn. Without one it waits. Workers
    are started on demand, up to `concurrency`.

    Args:
        group: the id of the group.
        readers: the readers of the member.
        put_back: takes back a message that was delivered but not processed.
        failed: called with each failure of the handler.
        handler: the handler of the user.
        interceptors: wrap the handler; the first is the outermost.
        concurrency: the maximum of workers.
        on_error: the effect of a failure of the handler.
    """

    # State, changed only by methods of this class in the event loop: `_workers` are the tasks,
    # `_idle` has a future for each waiting worker, `_stopping` is set once.

    def __init__(
        self,
        group: str,
        readers: GroupReaders,
        put_back: Callable[[PartitionReader, Message], None],
        failed: Callable[[HandlerFailed], None],
        handler: MessageHandler,
        interceptors: tuple[Interceptor, ...],
        *,
        concurrency: int,
        on_error: OnError,
    ) -> None:
        self._group = group
        self._readers = readers
        self._put_back = put_back
        self._failed = failed
        self._handle = wrapped(handler, interceptors)
        self._concurrency = concurrency
        self._skips = on_error == "skip"
        self._error: BaseException | None = None
        self._stopping = asyncio.Event()
        self._workers: set[asyncio.Task[None]] = set()
        self._idle: list[asyncio.Future[None]] = []
        self._tasks: asyncio.TaskGroup | None = None
        self._task: asyncio.Task[Any] | None = None
        self._context = copy_context()
        self._loop = asyncio.get_running_loop()

    @property
    def is_handlers_task(self) -> bool:
        """True if the current task is running the handler."""
        return asyncio.current_task() in self._workers

    async def run(self) -> None:
        """Handle messages until `stop`, a failure, or the end of the group.

        Cancelling cancels the calls of the handler and waits until they have ended.

        Raises:
            ConcurrentRead: another task waits for messages.
            LiftbridgeError: a partition cannot be read.
            Exception: what the handler raised.
        """
        merge = self._readers.merge
        merge.share(self)
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
            merge.unshare()
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """Stop delivery; `run` returns when the calls of the handler have ended."""
        self._stopping.set()
        for waiter in self._idle:
            _wake(waiter)

    # Workers

    def ring(self) -> None:
        """Wake or start a worker, because a partition has messages or the group has ended."""
        if self._idle:
            _wake(self._idle.pop())
        elif (
            self._tasks is not None
            and len(self._workers) < self._concurrency
            and not self._stopping.is_set()
        ):
            worker = self._tasks.create_task(self._work(), context=self._context.copy())
            self._workers.add(worker)
            worker.add_done_callback(self._workers.discard)

    async def _work(self) -> None:
        try:
            while (reader := await self._next_turn()) is not None:
                if self._readers.merge.has_line:
                    self.ring()
                try:
                    await self._handle_turn(reader)
                finally:
                    self._readers.end_turn(reader)
        except Exception as error:  # noqa: BLE001 - raised by `run`
            self._fail(error)
        except BaseException:
            self.stop()
            raise

    async def _next_turn(self) -> PartitionReader | None:
        readers = self._readers
        while not self._stopping.is_set():
            reader = readers.take_turn()
            if reader is not None:
                return reader
            if readers.merge.is_finished:
                self.stop()
                break
            waiter = self._loop.create_future()
            self._idle.append(waiter)
            await waiter
        return None

    async def _handle_turn(self, reader: PartitionReader) -> None:
        partition = StreamPartition(reader.plan.stream, reader.plan.partition)
        readers, decoder, handle = self._readers, reader.decoder, self._handle
        merge, paused, stopping = readers.merge, readers.paused, self._stopping
        time = self._loop.time
        until = time() + _TURN
        while partition not in paused and not stopping.is_set() and decoder.refill():
            message = decoder.ready.popleft()
            merge.pick_up(reader)
            try:
                if readers.delivered is not None:
                    readers.delivered(message)
                answer = handle(message)
                if isinstance(answer, Awaitable):
                    await answer
            except BaseException as error:  # noqa: BLE001 - raised again, or reported
                self._handler_failed(reader, message, error)
            if time() >= until:
                await asyncio.sleep(0)
                if merge.has_line and not self._idle:
                    return
                until = time() + _TURN

    # Failures

    def _handler_failed(
        self, reader: PartitionReader, message: Message, error: BaseException
    ) -> None:
        """Skip the message or stop the run; the cancellation of the run is re-raised."""
        if isinstance(error, asyncio.CancelledError) and not self._is_cancelled:
            failure = GroupError("the handler was cancelled by something other than `run`")
            failure.__cause__ = error
            error = failure.at(message.stream, message.partition, message.offset)
        if not isinstance(error, Exception):
            self._put_back(reader, message)
            raise error
        stream, partition, offset = message.stream, message.partition, message.offset
        self._failed(HandlerFailed(self._group, stream, partition, offset, error))
        if self._skips:
            logger.warning(
                "the handler of the group %r failed, so the message at offset %d of %s/%d is"
                " skipped: %r",
                self._group,
                offset,
                stream,
                partition,
                error,
                exc_info=error,
            )
            return
        self._put_back(reader, message)
        error.add_note(
            f"raised by the handler of the group {self._group!r} for the message at offset"
            f" {offset} of {stream}/{partition}"
        )
        self._fail(error)

    def _fail(self, error: Exception) -> None:
        if self._error is None:
            self._error = error
        else:
            logger.warning("the group %r failed again while it stopped: %r", self._group, error)
        self.stop()

    @property
    def _is_cancelled(self) -> bool:
        return self._task is not None and self._task.cancelling() > 0


def wrapped(handler: MessageHandler, interceptors: tuple[Interceptor, ...]) -> MessageHandler:
    """Wrap a handler in the interceptors that process messages, if there are any."""
    processing = [each for each in interceptors if _processes(each)]
    if not processing:
        return handler

    async def handle(message: Message) -> None:
        answer = handler(message)
        if isinstance(answer, Awaitable):
            await answer

    return chained([each.process for each in processing], handle)


def _processes(interceptor: Interceptor) -> bool:
    return getattr(interceptor.process, "__func__", None) is not Interceptor.process


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
