"""The messages in flight: each is settled once, and its part of the window released then."""

from __future__ import annotations

import asyncio
import logging
from asyncio import InvalidStateError
from collections import deque
from typing import Final

from liftbridge_aio._runtime.window import Window
from liftbridge_aio.errors import LiftbridgeError, PublishError
from liftbridge_aio.model import Ack
from liftbridge_aio.net.reporter import Reporter
from liftbridge_aio.telemetry import PublishFailed

from .batches import AckBatch, size_of, take_out
from .message import PendingPublish

logger = logging.getLogger("liftbridge_aio.publisher")

_UNSEEN_REMEMBERED: Final = 1024


class InFlightTable:
    """The messages that are not settled, and what became of the others.

    It alone settles messages, and with that it alone removes from `unsettled`, here and in routes.
    `Dispatcher.enqueue` adds to both.
    """

    def __init__(self, window: Window, reporter: Reporter) -> None:
        self.acked = 0
        self.failed = 0
        self._window = window
        self._reporter = reporter
        self._published = reporter.published
        self.unsettled: dict[str, PendingPublish] = {}
        """The messages that are not settled, oldest first, by correlation id."""
        self._drains: list[_Drain] = []
        self._failures: deque[asyncio.Future[Ack | None] | LiftbridgeError] = deque(
            maxlen=_UNSEEN_REMEMBERED
        )

    def __len__(self) -> int:
        return len(self.unsettled)

    def all(self) -> list[PendingPublish]:
        """Return the messages that are not settled, oldest first."""
        return list(self.unsettled.values())

    def succeed(self, batch: AckBatch) -> None:
        """Settle messages, none of which must be settled yet, with their acks."""
        messages, acks, ids, routes = batch
        take_out(self.unsettled, ids)
        for route, settled in routes.items():
            route.unsettled -= settled
        size = size_of(messages)
        for pending, ack in zip(messages, acks, strict=True):
            pending.frame = b""
            pending.session = None
            try:
                pending.set_result(ack)
            except InvalidStateError:
                continue  # cancelled
        self.acked += len(acks)
        self._window.leave(size, len(messages))
        if self._published is not None:
            for ack in acks:
                self._published(ack)
        if self._drains:
            for pending in messages:
                self._notify_drains(pending)

    def succeed_without_ack(self, pending: PendingPublish) -> None:
        """Settle a message with ack policy NONE, which was written."""
        if self.forget(pending) and not pending.done():
            pending.set_result(None)

    def fail(self, pending: PendingPublish, error: LiftbridgeError) -> None:
        """Settle a message with an error, unless it was cancelled."""
        self.forget(pending)
        if pending.done():
            return
        error.at(pending.route.stream, pending.route.partition, pending.expected_offset)
        if isinstance(error, PublishError):
            error.correlation_id = pending.correlation_id
        pending.set_exception(error)
        if not pending.terms.quiet:
            self.report(error, pending.correlation_id)
            self.remember(pending)

    def fail_unacked(
        self, stream: str, partition: int, correlation_id: str, error: LiftbridgeError
    ) -> None:
        """Report the error of a message with ack policy NONE, which nobody waits for."""
        self.report(error.at(stream, partition), correlation_id)
        self._failures.append(error)

    def forget(self, pending: PendingPublish) -> bool:
        """Remove a message and release its part of the window; return False if it was settled.

        A queue or an outbox may still hold it, and skips it later.
        """
        if self.unsettled.get(pending.correlation_id) is not pending:
            return False
        del self.unsettled[pending.correlation_id]
        self._window.leave(len(pending.frame))
        pending.frame = b""
        pending.route.unsettled -= 1
        self._notify_drains(pending)
        return True

    def _notify_drains(self, pending: PendingPublish) -> None:
        for drain in self._drains:
            drain.settled(pending.correlation_id)

    async def drain(self) -> None:
        """Wait until every message that is in flight now is settled.

        Cancelling abandons the wait.
        """
        if self.unsettled:
            drain = _Drain(set(self.unsettled))
            self._drains.append(drain)
            try:
                await drain.done
            finally:
                self._drains.remove(drain)

    def remember(self, future: asyncio.Future[Ack | None]) -> None:
        """Keep a failed future for the next flush, which raises what nobody has seen."""
        self._failures.append(future)

    def report(self, error: LiftbridgeError, correlation_id: str) -> None:
        """Count a failure and tell the hook."""
        self.failed += 1
        event = PublishFailed(error.stream or "", error.partition or 0, correlation_id, error)
        self._reporter.publish_failed(event)

    def raise_first_unseen(self) -> None:
        """Raise the first error since the last call that nobody has retrieved.

        The others count as seen then; a note on the first says how many there are.
        """
        errors = self._take_unseen()
        if not errors:
            return
        if len(errors) > 1:
            errors[0].add_note(f"{len(errors) - 1} more publishes failed since the last flush")
        raise errors[0]

    def keep_all_unseen(self) -> None:
        """Forget no failure from now on; there are no more to come than fit into the window."""
        self._failures = deque(self._failures)

    def log_unseen(self) -> None:
        """Log the errors that nobody has retrieved in one line: asyncio would log each."""
        errors = self._take_unseen()
        if errors:
            text = "closed with %d failed publishes whose errors nobody retrieved; the first: %s"
            logger.warning(text, len(errors), str(errors[0]))

    def _take_unseen(self) -> list[BaseException]:
        errors = [error for error in map(_unseen_error, self._failures) if error is not None]
        self._failures.clear()
        return errors


class _Drain:
    """The messages that a call of `drain` waits for."""

    def __init__(self, remaining: set[str]) -> None:
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._remaining = remaining

    def settled(self, correlation_id: str) -> None:
        self._remaining.discard(correlation_id)
        if not self._remaining and not self.done.done():
            self.done.set_result(None)


def _unseen_error(failure: asyncio.Future[Ack | None] | LiftbridgeError) -> BaseException | None:
    if isinstance(failure, LiftbridgeError):
        return failure
    # asyncio keeps this up until somebody has asked for the exception.
    return failure.exception() if getattr(failure, "_log_traceback", False) else None
