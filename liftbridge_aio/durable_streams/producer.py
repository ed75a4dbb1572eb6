"""`IdempotentProducer`: appends that are stored once, however often they are sent."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Generator
from types import TracebackType
from typing import Any, Final, Self

from liftbridge_aio._core.arguments import (
    INT32_MAX,
    check_flags,
    check_type,
    check_whole_number,
)
from liftbridge_aio._runtime.supervisor import Supervisor
from liftbridge_aio.errors import LiftbridgeError
from liftbridge_aio.options import Duration, timer_seconds

from .core import protocol
from .core.parsing import INTEGER_MAX
from .core.producer_window import Batch, BatchState, Phase, Window
from .core.status_errors import RETRIED
from .errors import (
    Closed,
    DurableStreamError,
    NotStored,
    OutcomeUnknown,
    Refused,
    SequenceGap,
    StaleEpoch,
    TooLarge,
)
from .stream import Appended, DurableStream, appended
from .transport import check_header

logger = logging.getLogger("liftbridge_aio.durable_streams")

_BATCH_BYTES: Final = 512 << 10
"""Default of `max_batch_bytes`: half of what gateways and proxies commonly take, 1 MiB."""
_DUPLICATE: Final = 204
_STOP_TIMEOUT: Final = 5.0
_SEPARATOR: Final = 1
"""Bytes between items of JSON; those before the first and after the last count as one item's."""
_WAITING_BATCHES: Final = 2
"""Batches that may wait for their turn, as a multiple of those in flight."""


class PendingAppend:
    """An append that is not answered yet; await it for its result, any number of times.

    Cancelling the wait leaves the append alone.
    """

    __slots__ = ("_result", "failure", "partly_stored")

    def __init__(self) -> None:
        self.partly_stored = False
        """The batch, or a part of it since it was split, is stored."""
        self.failure: LiftbridgeError | None = None
        """The error of the first part that failed; told once all parts are done."""
        self._result: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()

    def __await__(self) -> Generator[Any, None, Appended]:
        """Wait for the answer."""
        return asyncio.shield(self._result).__await__()

    @property
    def done(self) -> bool:
        """True if it is stored, or failed."""
        return self._result.done()

    def settle(self, result: Appended | LiftbridgeError) -> None:
        """Note the answer."""
        if isinstance(result, Appended):
            self._result.set_result(result)
        else:
            self._result.set_exception(result)
            self._result.exception()  # `flush` raises it as well, so nobody has to await this


class IdempotentProducer:
    """Appends in batches, several of them in flight, and repeats them safely.

        async with IdempotentProducer(stream, "billing-1", epoch=3) as producer:
            for order in orders:
                await producer.append_async(order)
            await producer.flush()

    The server recognises a batch that it has by the producer's id and epoch and the batch's number.
    A producer with a higher epoch fences those with a lower one off, so a process that starts again
    takes the next epoch, which it has saved. After a failure nothing later is stored, until
    `restart`.

    Args:
        stream: to append to, with its headers. It is to stay open.
        producer_id: names it for the server, over restarts of the process.
        epoch: higher than that of all producers before it with this id.
        auto_claim: if the server knows this epoch or a higher one, take the next. **Then two
            producers with one id may take turns instead of one being stopped.**
        max_batch_bytes: largest batch; a larger item goes alone. A batch that is still too large
            for the server is split.
        max_batch_items: items from which it is; None: no limit.
        linger: longest time that an item waits for others.
        max_in_flight: batches that are sent at the same time.

    Raises:
        InvalidRequest: an argument is invalid.
    """

    def __init__(
        self,
        stream: DurableStream,
        producer_id: str,
        *,
        epoch: int = 0,
        auto_claim: bool = False,
        max_batch_bytes: int = _BATCH_BYTES,
        max_batch_items: int | None = None,
        linger: Duration = 0.005,
        max_in_flight: int = 5,
    ) -> None:
        check_type(stream, DurableStream, "stream is a DurableStream")
        check_header(producer_id, "producer_id")
        check_whole_number(epoch, "epoch", 0, INTEGER_MAX)
        check_flags(auto_claim=auto_claim)
        check_whole_number(max_batch_bytes, "max_batch_bytes", 1, INT32_MAX)
        if max_batch_items is not None:
            check_whole_number(max_batch_items, "max_batch_items", 1, INT32_MAX)
        check_whole_number(max_in_flight, "max_in_flight", 1, INT32_MAX)
        self._stream = stream
        self._id = producer_id
        self._max_bytes = max_batch_bytes
        self._max_items = max_batch_items or INT32_MAX
        self._linger = timer_seconds(linger, "linger")
        self._max_waiting = max_in_flight * _WAITING_BATCHES
        self._window = Window(epoch, max_in_flight, auto_claim=auto_claim)
        self._supervisor = Supervisor("durable_streams", "the producer")
        self._items: list[bytes] = []
        self._bytes = 0
        self._pending: PendingAppend | None = None
        """Of the batch that is being filled."""
        self._results: dict[Batch, PendingAppend] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._content_type = ""
        self._encode = protocol.encoder("")
        self._changed = asyncio.Event()
        self._is_entered = False
        self._closing: PendingAppend | None = None
        """Of the request that closes the stream."""
        self._failure: LiftbridgeError | None = None
        """The error of the first append that failed, since the last restart."""
        self._unsure = 0
        """Batches that were not stored for certain when it was closed."""
        self._warned_epoch = -1

    @property
    def epoch(self) -> int:
        """The epoch: what to save, if another process is to go on with a higher one."""
        return self._window.epoch

    @property
    def phase(self) -> Phase:
        """The phase, by what it may send."""
        return self._window.phase

    async def __aenter__(self) -> Self:
        """Ask the server for the stream's content type, unless it is known. Cancelling closes it.

        Raises:
            NoStream: there is no such stream.
            DurableStreamError: the request failed for another reason.
        """
        self._content_type = await self._stream.require_content_type()
        self._encode = protocol.encoder(self._content_type)
        await self._supervisor.start()
        self._is_entered = True
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Send what is left and end; see `aclose`.

        When the block was cancelled nothing more is sent. An exception of the block is not replaced
        by one of closing, which is logged.
        """
        if exc is None:
            await self.aclose()
            return
        try:
            if isinstance(exc, Exception):
                await self.flush()
        except LiftbridgeError as error:
            logger.warning("while closing %r: %s", self, error)
        finally:
            await self._stop()

    def __repr__(self) -> str:
        """Return id, epoch and URL."""
        return f"<IdempotentProducer {self._id!r}, epoch {self.epoch}, of {self._stream.url}>"

    async def aclose(self) -> None:
        """Send what is left, wait for the answers and end. The stream stays open. Idempotent.

        Takes as long as the `timeout` of the stream's options at most, for each batch that is left.
        Cancelling ends it at once; what is not answered fails.

        Raises:
            DurableStreamError: something was not stored; as `flush`.
        """
        if not self._is_entered:
            return
        try:
            await self.flush()
        finally:
            await self._stop()

    async def _stop(self) -> None:
        self._is_entered = False
        if self._timer is not None:
            self._timer.cancel()
        await self._supervisor.stop(_STOP_TIMEOUT)
        unsent = NotStored(f"{self!r} was closed before this was sent")
        self._settle(self._window.abandon(unsent))
        self._seal()
        if self._unsure:
            logger.warning("%r was closed before %d batches were stored", self, self._unsure)

    async def append(self, data: Any) -> Appended:
        """Append an item and wait until it is stored. Arguments and errors: as `append_async`.

        Cancelling the wait leaves the append alone.
        """
        return await (await self.append_async(data))

    async def append_async(self, data: Any) -> PendingAppend:
        """Take an item for the next batch, and return what can be awaited for its result.

        Waits only while too much is unsent. Cancelling that takes the item back.

        Args:
            data: as for `DurableStream.append`.

        Raises:
            InvalidRequest: the data is invalid; nothing else is affected.
            NotStored: one before it failed (`__cause__`), and `restart` was not called.
            Closed: the producer is closed.
        """
        self._check_usable()
        item = self._encode(data)
        while len(self._window) >= self._max_waiting:
            self._changed.clear()
            await self._changed.wait()
            self._check_usable()
        if self._items and self._bytes + len(item) + _SEPARATOR > self._max_bytes:
            self._seal()
        pending = self._pending
        if pending is None:
            pending = self._pending = PendingAppend()
            self._timer = asyncio.get_running_loop().call_later(self._linger, self._seal)
        self._items.append(item)
        self._bytes += len(item) + _SEPARATOR
        if self._bytes >= self._max_bytes or len(self._items) >= self._max_items:
            self._seal()
        return pending

    async def flush(self) -> None:
        """Send what is left, and wait until all is stored. Cancelling abandons the wait.

        Raises:
            DurableStreamError: something is not stored, since the last `restart`: what the append
                that failed first raised.
        """
        self._seal()
        while len(self._window):
            self._changed.clear()
            await self._changed.wait()
        if self._failure is not None:
            raise self._failure

    async def restart(self) -> None:
        """Go on after a failure, in the next epoch, once all answers are there.

        What failed with `OutcomeUnknown` may be stored: append it again only if a duplicate does
        less harm than a loss. Cancelling abandons the wait.

        Raises:
            Closed: the producer is closed.
        """
        self._seal()
        while len(self._window):
            self._changed.clear()
            await self._changed.wait()
        if not self._is_entered:
            raise self._closed()
        self._window.restart()
        self._failure = None

    async def close(self, data: Any = None) -> str:
        """Send what is left, close the stream, and end. Return the offset of its end. Idempotent.

        Cancelling abandons the wait; another call waits again.

        Args:
            data: a last item, appended in the step that closes the stream; None: none.

        Raises:
            DurableStreamError: something is not stored, or the stream was not closed; as `flush`.
        """
        if self._closing is None:
            item = None if data is None else self._encode(data)
            await self.flush()
            self._check_usable()
            body = b"" if item is None else protocol.join_values([item], self._content_type)
            batch = Batch(body, closes=True)
            self._closing = self._results[batch] = PendingAppend()
            self._window.add(batch)
            self._pump()
        offset = (await self._closing).offset
        await self._stop()
        return offset

    def _check_usable(self) -> None:
        if not self._is_entered:
            raise self._closed()
        if self._window.phase is Phase.FAILED:
            raise NotStored(f"{self!r} failed before") from self._failure

    def _closed(self) -> Closed:
        return Closed(f"{self!r} is closed, or was not entered")

    def _seal(self) -> None:
        """Make a batch of the items and send it if there is room in the window."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        pending, self._pending = self._pending, None
        if pending is None:
            return
        items, self._items, self._bytes = self._items, [], 0
        batch = self._batch(items)
        self._results[batch] = pending
        if self._window.phase is Phase.FAILED:
            batch.state, batch.error = BatchState.SKIPPED, self._window.failure
            self._settle([batch])
        else:
            self._window.add(batch)
            self._pump()

    def _batch(self, items: list[bytes]) -> Batch:
        return Batch(protocol.join_values(items, self._content_type), items)

    def _split(self, batch: Batch, error: TooLarge) -> list[Batch]:
        """Replace a batch that is too large by its halves, which share its result."""
        batch.maybe_stored = False
        items, middle = list(batch.items), len(batch.items) // 2
        halves = [self._batch(each) for each in (items[:middle], items[middle:])] if middle else []
        done = self._window.refused_as_too_large(batch, halves, error)
        if batch.state is BatchState.SPLIT:
            pending = self._results.pop(batch)
            self._results |= dict.fromkeys(halves, pending)
        return done

    def _pump(self) -> None:
        if not self._supervisor.running:
            return
        for batch in self._window.to_send():
            number = f"batch {batch.epoch}/{batch.seq}"
            self._supervisor.spawn(self._send, batch, name=number)

    async def _send(self, batch: Batch) -> None:
        """Send a batch, and note the answer."""
        window, stored = self._window, None
        try:
            result = await self._request(batch)
        except SequenceGap as error:
            batch.maybe_stored = False
            done = window.refused_as_gap(batch, error)
        except StaleEpoch as error:
            done = window.refused_as_stale(batch, error.current_epoch, error)
        except TooLarge as error:
            done = self._split(batch, error)
        except LiftbridgeError as error:
            if isinstance(error, Refused) and error.status not in RETRIED:
                batch.maybe_stored = False
            done = window.failed(batch, error)
        except BaseException:
            batch.note_unsure()
            self._settle(window.failed(batch, self._closed()))
            raise
        else:
            if result.duplicate and not batch.maybe_stored:
                self._warn_of_duplicate(batch)
            stored = result
            done = window.stored(batch, duplicate=result.duplicate)
        self._settle(done, stored)
        self._pump()

    async def _request(self, batch: Batch) -> Appended:
        headers = {
            protocol.PRODUCER_ID: self._id,
            protocol.PRODUCER_EPOCH: str(batch.epoch),
            protocol.PRODUCER_SEQ: str(batch.seq),
        }
        if batch.body:
            headers["Content-Type"] = self._content_type
        if batch.closes:
            headers[protocol.STREAM_CLOSED] = "true"

        def unsure(_: DurableStreamError) -> None:
            batch.note_unsure()

        response = await self._stream.transport.send(
            "POST", headers=headers, content=batch.body or None, unsure=unsure
        )
        # Closing without data is answered with the status of a duplicate.
        is_duplicate = response.status_code == _DUPLICATE and bool(batch.body)
        return appended(response.headers, self._stream.url, duplicate=is_duplicate)

    def _warn_of_duplicate(self, batch: Batch) -> None:
        """Log, once an epoch, that the server has a batch that is sent for the first time."""
        if self._warned_epoch != batch.epoch:
            self._warned_epoch = batch.epoch
            logger.warning(
                "%r: the server has batch %d of this epoch already, so this one is not stored; "
                "unless it repeats an earlier process's on purpose, start with a higher epoch",
                self,
                batch.seq,
            )

    def _settle(self, done: list[Batch], result: Appended | None = None) -> None:
        """Tell the results of batches that are done; `result` is of the one that is stored."""
        for batch in done:
            pending, error = self._results.pop(batch), batch.error
            if batch.state is BatchState.STORED:
                pending.partly_stored = True
            elif error is not None:
                pending.failure = pending.failure or self._failure_of(batch, error)
            if any(each is pending for each in self._results.values()):
                continue  # other parts of what was split are not done
            if pending.failure is not None:
                self._fail(pending, pending.failure)
            elif result is not None:
                pending.settle(result)
        if done:
            self._changed.set()

    def _failure_of(self, batch: Batch, error: LiftbridgeError) -> LiftbridgeError:
        if not self._is_entered:
            self._unsure += 1
        if batch.maybe_stored:
            text = f"{error.message}; the data may be stored or not"
            failure: LiftbridgeError = OutcomeUnknown(text)
        elif batch.state is BatchState.SKIPPED and not isinstance(error, NotStored):
            failure = NotStored(f"{self!r} failed before")
        else:
            return error
        failure.__cause__ = self._failure or error
        return failure

    def _fail(self, pending: PendingAppend, failure: LiftbridgeError) -> None:
        if pending.partly_stored and not isinstance(failure, OutcomeUnknown):
            text = f"{failure.message}; the batch was split, and its first items are stored"
            unknown = OutcomeUnknown(text)
            unknown.__cause__ = failure
            failure = unknown
        self._failure = self._failure or failure
        pending.settle(failure)
