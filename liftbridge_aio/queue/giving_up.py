"""Dead-letters messages: dead letter, callback and log; or moves them to retry streams."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from math import inf
from typing import Final

from liftbridge_aio._core.foreign_cancellation import foreign_cancellation_fails
from liftbridge_aio._core.foreign_text import report_bytes
from liftbridge_aio.errors import InvalidRequest, LiftbridgeError
from liftbridge_aio.interceptors import AckFuture
from liftbridge_aio.model import AckPolicy, OutgoingMessage
from liftbridge_aio.retry import Retry

from .core.attempt import AttemptState
from .core.moved_message import (
    ATTEMPTS_HEADER,
    DUE_HEADER,
    OFFSET_HEADER,
    PARTITION_HEADER,
    STREAM_HEADER,
)
from .delivery import Delivery
from .errors import TooManyDeadLetters, error_text
from .policies import DeadLetter, OnGivingUp
from .retry_tiers import RetryTiers

logger = logging.getLogger("liftbridge_aio.queue")

GROUP_HEADER: Final = "queue-group"
ERROR_HEADER: Final = "queue-error"
"""The error of the last attempt."""
CUT_HEADER: Final = "queue-cut"
"""The number of headers that were omitted, because the dead letter was too large."""
HEADERS: Final = (
    STREAM_HEADER,
    PARTITION_HEADER,
    OFFSET_HEADER,
    GROUP_HEADER,
    ATTEMPTS_HEADER,
    ERROR_HEADER,
    CUT_HEADER,
)

_MOST_ERROR_BYTES: Final = 1000
_SHORT_ERROR_BYTES: Final = 100
_FIRST_DELAY: Final = 0.1
_LONGEST_DELAY: Final = 5.0
"""Seconds between two attempts to store a message; doubled after each."""


class GivingUp:
    """Dead-letters messages of a queue, or moves them to retry streams.

    Args:
        group: the id of the group.
        dead_letter: the stream of dead letters; None: there is none.
        callback: called with each delivery first; None: no callback.
        submit: publishes a message.
        tiers: the retry streams; None: there are none.
    """

    def __init__(
        self,
        group: str,
        dead_letter: DeadLetter | None,
        callback: OnGivingUp | None,
        submit: Callable[[OutgoingMessage], Awaitable[AckFuture]],
        tiers: RetryTiers | None,
    ) -> None:
        # State
        self.stored = 0
        """Dead letters that were stored."""
        self.lost = 0
        """Messages whose dead letter was refused in every form."""
        self.moved = 0
        """Messages that were moved to a retry stream."""
        self.in_sequence = 0
        """Dead-lettered messages since the last ack; an ack sets it to 0."""
        self._group = group
        self._dead_letter = dead_letter
        self._callback = callback
        self._submit = submit
        self._tiers = tiers

    def count(self, delivery: Delivery) -> None:
        """Count a message before it is dead-lettered; raise `TooManyDeadLetters` at the limit."""
        if delivery.deadline < inf:
            return  # to be moved
        limit = self._dead_letter.limit if self._dead_letter is not None else None
        if limit is not None and self.in_sequence >= limit:
            text = f"{limit} messages in sequence failed for good, without an ack between them"
            error = TooManyDeadLetters(text)
            error.at(delivery.stream, delivery.partition, delivery.offset)
            raise error from delivery.error
        self.in_sequence += 1

    async def give_up(self, delivery: Delivery) -> bool:
        """Call the callback and store the dead letter, or move the message; retry until stored.

        A dead letter that the servers refuse as too large is cut. If they refuse its shortest form,
        it is logged as lost.

        Returns:
            False if the retry stream refuses the message; it waits in memory then.
        """
        if self._tiers is not None and delivery.deadline < inf:
            return await self._move(self._tiers, delivery)
        if self._callback is not None:
            try:
                with foreign_cancellation_fails("on_giving_up"):
                    answer = self._callback(delivery)
                    if isinstance(answer, Awaitable):
                        await answer
            except Exception:
                logger.exception("on_giving_up failed for %s", repr(delivery))
        if self._dead_letter is None:
            if self._callback is None:
                logger.error(
                    "gave up %s after %d attempts: %r",
                    repr(delivery),
                    delivery.attempt,
                    delivery.error,
                )
            return True
        await self._store(self._dead_letter.stream, delivery)
        return True

    async def _store(self, stream: str, delivery: Delivery) -> None:
        refusal: InvalidRequest | None = None
        for most, is_whole in _FORMS:
            message = self._letter(stream, delivery, most, is_whole=is_whole)

            async def store(message: OutgoingMessage = message) -> None:
                await (await self._submit(message))
                self.stored += 1

            try:
                await _repeat(store, delivery, "the dead letter")
            except InvalidRequest as error:
                refusal = error
            else:
                return
        self.lost += 1
        logger.error(
            "the dead letter of %s is lost: %r refuses it: %s; the error of the message: %s",
            repr(delivery),
            stream,
            refusal,
            _text(delivery.error, _MOST_ERROR_BYTES).decode(),
        )

    async def _move(self, tiers: RetryTiers, delivery: Delivery) -> bool:
        time = asyncio.get_running_loop().time

        async def store() -> None:
            delay = max(delivery.deadline - time(), 0.0)
            await tiers.move(delivery.message, delivery.attempt, delay)
            self.moved += 1

        try:
            await _repeat(store, delivery, "the next attempt")
        except InvalidRequest as error:
            logger.warning("%s waits in memory, not in a retry stream: %s", repr(delivery), error)
            return False
        return True

    def _letter(
        self, stream: str, delivery: Delivery, most: int, *, is_whole: bool
    ) -> OutgoingMessage:
        message, origin = delivery.message, delivery.origin
        own = {name: value for name, value in message.headers.items() if name != DUE_HEADER}
        headers = {
            **(own if is_whole else {CUT_HEADER: b"%d" % len(own)}),
            STREAM_HEADER: origin.stream.encode(),
            PARTITION_HEADER: b"%d" % origin.partition,
            OFFSET_HEADER: b"%d" % origin.offset,
            GROUP_HEADER: self._group.encode(),
            ATTEMPTS_HEADER: b"%d" % delivery.attempt,
            ERROR_HEADER: _text(delivery.error, most),
        }
        return OutgoingMessage(
            stream,
            message.value,
            message.key or None,
            headers,
            ack_policy=AckPolicy.ALL,
            retry=Retry(),
        )


async def _repeat(store: Callable[[], Awaitable[None]], delivery: Delivery, what: str) -> None:
    """Retry until something is stored, or the partition is released; raise `InvalidRequest`."""
    delay = _FIRST_DELAY
    while delivery.state is AttemptState.GIVING_UP:
        try:
            with foreign_cancellation_fails("a publish"):
                await store()
        except InvalidRequest:
            raise
        except Exception as error:
            logger.warning(
                "%s of %s was not stored, and is retried: %s",
                what,
                repr(delivery),
                error,
                exc_info=None if isinstance(error, LiftbridgeError) else error,
            )
        else:
            return
        await asyncio.sleep(delay)
        delay = min(delay * 2, _LONGEST_DELAY)


def _text(error: BaseException | None, most: int) -> bytes:
    if error is None:
        return b"unknown: the process that made the last attempt has ended"
    return report_bytes(error_text(error), most)


_FORMS: Final = (
    (_MOST_ERROR_BYTES, True),
    (_SHORT_ERROR_BYTES, True),
    (_SHORT_ERROR_BYTES, False),
)
"""The forms of a dead letter, in order: most bytes of the error; True with all headers."""
