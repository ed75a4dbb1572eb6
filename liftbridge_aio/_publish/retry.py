"""Publishes again where the outcome is unknown, and finds out if an earlier attempt is stored."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final

from liftbridge_aio._core.arguments import check_type
from liftbridge_aio._runtime.supervisor import Child
from liftbridge_aio.errors import (
    ClientClosed,
    IncorrectOffset,
    LiftbridgeError,
    PublishError,
    PublishOutcomeUnknown,
)
from liftbridge_aio.model import Ack, Message, OutgoingMessage
from liftbridge_aio.net.network import Network
from liftbridge_aio.retry import Retry
from liftbridge_aio.telemetry import Retried

from .publisher import Publisher

logger = logging.getLogger("liftbridge_aio.publisher")

_CLOSED: Final = "the client was closed before the outcome was known"

ReadBack = Callable[[str, int, int], Awaitable[Message | None]]
"""Reads the message at (stream, partition, offset); None where there is none."""


class RetryingPublisher:
    """Publishes messages with a `Retry`; it holds those whose outcome is unknown."""

    def __init__(self, publisher: Publisher, network: Network, read_back: ReadBack) -> None:
        self._publisher = publisher
        self._network = network
        self._read_back = read_back
        self._open: set[asyncio.Future[Ack | None]] = set()

    async def settle(self, timeout: float | None = None) -> None:
        """Wait until the messages that are retried now are settled, at most `timeout` seconds.

        Cancelling abandons the wait.
        """
        if self._open:
            await asyncio.wait(tuple(self._open), timeout=timeout)

    async def submit(self, message: OutgoingMessage) -> asyncio.Future[Ack | None]:
        """Queue a message and return a future that is settled by its last attempt.

        Cancelling this leaves nothing behind; cancelling the future ends the attempts.
        """
        retry = message.retry
        if retry is None:
            return await self._publisher.submit(message)
        check_type(retry, Retry, "retry is a Retry")
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._publisher.seconds_for(message)
        # Chosen once: every attempt must go to the same partition.
        partition = await self._publisher.partition_of(message)
        message = replace(message, partition=partition)
        first = await self._attempt(message, deadline)
        outcome: asyncio.Future[Ack | None] = loop.create_future()

        async def follow() -> None:
            await self._follow(outcome, first, message, retry, deadline)

        child = self._network.supervisor.spawn(follow, name=f"publish-retry:{message.stream}")
        self._open.add(outcome)
        outcome.add_done_callback(lambda _: self._close(outcome, child))
        return outcome

    def _close(self, outcome: asyncio.Future[Ack | None], child: Child) -> None:
        self._open.discard(outcome)
        child.cancel()

    async def _attempt(
        self, message: OutgoingMessage, deadline: float
    ) -> asyncio.Future[Ack | None]:
        timeout = max(deadline - asyncio.get_running_loop().time(), 0.0)
        return await self._publisher.submit(replace(message, timeout=timeout, quiet=True))

    async def _follow(
        self,
        outcome: asyncio.Future[Ack | None],
        attempt: asyncio.Future[Ack | None],
        message: OutgoingMessage,
        retry: Retry,
        deadline: float,
    ) -> None:
        try:
            ack = await self._retry_until_known(attempt, message, retry, deadline)
        except ClientClosed:
            self._fail(outcome, message, PublishOutcomeUnknown(_CLOSED))
        except LiftbridgeError as error:
            self._fail(outcome, message, error)
        except Exception as error:
            text = f"publishing again failed by a fault of the client: {error!r}"
            fault = PublishOutcomeUnknown(text)
            fault.__cause__ = error
            self._fail(outcome, message, fault)
            raise
        else:
            if not outcome.done():
                outcome.set_result(ack)
        finally:
            self._fail(outcome, message, PublishOutcomeUnknown(_CLOSED))

    def _fail(
        self, outcome: asyncio.Future[Ack | None], message: OutgoingMessage, error: LiftbridgeError
    ) -> None:
        if not outcome.done():
            error.at(message.stream, message.partition)
            outcome.set_exception(error)
            correlation_id = message.correlation_id or ""
            if isinstance(error, PublishError):
                correlation_id = error.correlation_id or correlation_id
            if not message.quiet:
                self._publisher.table.report(error, correlation_id)
                self._publisher.table.remember(outcome)

    async def _retry_until_known(
        self,
        attempt: asyncio.Future[Ack | None],
        message: OutgoingMessage,
        retry: Retry,
        deadline: float,
    ) -> Ack | None:
        attempts = 1
        unknown = False
        while True:
            try:
                return await attempt
            except IncorrectOffset as error:
                if attempts == 1:
                    raise
                # An earlier attempt may be stored at that offset.
                ack = await self._own_message(error, message)
                if ack is None:
                    raise
                return ack
            except PublishOutcomeUnknown as error:
                unknown = True
                delay = retry.backoff.delay(attempts - 1, random.random())  # noqa: S311 - jitter
                left = deadline - asyncio.get_running_loop().time()
                if attempts >= retry.attempts or delay >= left:
                    raise
                self._network.reporter.retried(Retried("publish", attempts, delay, error))
                await asyncio.sleep(delay)
            except LiftbridgeError as error:
                raise _final_error(error, unknown=unknown) from error
            finally:
                attempt.cancel()
            attempts += 1
            try:
                attempt = await self._attempt(message, deadline)
            except LiftbridgeError as error:
                raise _final_error(error, unknown=unknown) from error

    async def _own_message(self, error: IncorrectOffset, message: OutgoingMessage) -> Ack | None:
        """Read the message at the expected offset; return an ack if an attempt of ours wrote it."""
        offset, partition = message.expected_offset, message.partition
        if offset is None or partition is None:
            return None
        try:
            stored = await self._read_back(message.stream, partition, offset)
        except LiftbridgeError as failure:
            raise PublishOutcomeUnknown(
                f"the log has moved on, and offset {offset} could not be read back: {failure}"
            ) from failure
        if stored is None:
            return None
        ours = (message.value, message.key or b"", dict(message.headers or {}))
        if (stored.value, stored.key, stored.headers) != ours:
            return None
        logger.debug("offset %d of %s holds an earlier attempt", offset, message.stream)
        return Ack(
            message.stream,
            stored.subject.removesuffix(f".{partition}") if partition else stored.subject,
            stored.subject,
            offset,
            correlation_id=error.correlation_id,
            ack_policy=message.ack_policy,
            reception_timestamp=stored.timestamp,
        )


def _final_error(error: LiftbridgeError, *, unknown: bool) -> LiftbridgeError:
    """Return the error of all attempts: the last one's only if no earlier one may be stored."""
    if not unknown:
        return error
    return PublishOutcomeUnknown(f"an earlier attempt may be stored; the last one failed: {error}")
