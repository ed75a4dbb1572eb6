"""Calls a handler for each message of a member, for several partitions concurrently."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Literal, TypeAlias

from liftbridge_aio._core.foreign_cancellation import failure_of
from liftbridge_aio._subscribe.partition_reader import PartitionReader
from liftbridge_aio.errors import CallbackCancelled
from liftbridge_aio.interceptors import Interceptor, chained, processing
from liftbridge_aio.model import Message, StreamPartition
from liftbridge_aio.telemetry import HandlerFailed

from .group_readers import GroupReaders
from .workers import Workers

logger = logging.getLogger("liftbridge_aio.groups")

MessageHandler: TypeAlias = Callable[[Message], Awaitable[object] | object]
"""A handler of messages: a coroutine function, which is awaited, or a plain function."""
OnError: TypeAlias = Literal["stop", "skip"]


class HandlerRunner(Workers):
    """A single run of a handler of messages.

    A worker takes the turn of a partition, handles its messages sequentially until none is left or
    the turn is over, and then takes the next turn.

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
        super().__init__(group, readers.merge, concurrency)
        self._readers = readers
        self._put_back = put_back
        self._failed = failed
        self._handle = wrapped(handler, interceptors)
        self._skips = on_error == "skip"

    async def _take_turn(self) -> bool:
        readers = self._readers
        reader = readers.take_turn()
        if reader is None:
            return False
        if readers.merge.has_line:
            self.ring()
        try:
            await self._handle_turn(reader)
        finally:
            readers.end_turn(reader)
        return True

    async def _handle_turn(self, reader: PartitionReader) -> None:
        partition = StreamPartition(reader.plan.stream, reader.plan.partition)
        readers, decoder, handle = self._readers, reader.decoder, self._handle
        merge, paused, stopping = readers.merge, readers.paused, self._stopping
        time = self._loop.time
        until = time() + self.TURN
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
                until = time() + self.TURN

    # Failures

    def _handler_failed(
        self, reader: PartitionReader, message: Message, error: BaseException
    ) -> None:
        """Skip the message or stop the run; the cancellation of the run is re-raised."""
        try:
            error = failure_of(error, "the handler")
        except BaseException:
            self._put_back(reader, message)
            raise
        if isinstance(error, CallbackCancelled):
            error.at(message.stream, message.partition, message.offset)
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


def wrapped(handler: MessageHandler, interceptors: tuple[Interceptor, ...]) -> MessageHandler:
    """Wrap a handler in the interceptors that process messages, if there are any."""
    wrappers = processing(interceptors)
    if not wrappers:
        return handler

    async def handle(message: Message) -> None:
        answer = handler(message)
        if isinstance(answer, Awaitable):
            await answer

    return chained(wrappers, handle)
