"""Publishing again when the outcome is unknown, and finding out what became of the first try."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypedDict, Unpack

from .errors import (
    ClientClosed,
    IncorrectOffset,
    LiftbridgeError,
    PublishError,
    PublishOutcomeUnknown,
)
from .model import RESERVED_HEADERS, Ack, AckPolicy, Message, Partitioner
from .net.connection import Connection
from .net.supervisor import Child
from .options import Duration
from .publisher import Publisher
from .retry import Retry
from .telemetry import Retried

logger = logging.getLogger("liftbridge_aio.publisher")

_CLOSED: Final = "the client was closed before the outcome was known"

ReadBack = Callable[[str, int, int], Awaitable[Message | None]]
"""Reads the message at (stream, partition, offset); None where there is none."""


class PublishArguments(TypedDict):
    """The keyword arguments of `Publisher.submit`."""

    key: bytes | None
    headers: Mapping[str, bytes] | None
    partition: int | None
    partitioner: Partitioner | None
    ack_policy: AckPolicy
    ack_timeout: Duration | None
    expected_offset: int | None
    correlation_id: str | None
    timeout: Duration | None


class RetryingPublisher:
    """Wraps the publisher for messages that may be sent again."""

    def __init__(self, publisher: Publisher, connection: Connection, read_back: ReadBack) -> None:
        self._publisher = publisher
        self._connection = connection
        self._read_back = read_back
        self._open: set[asyncio.Future[Ack | None]] = set()

    async def settle(self, timeout: float | None = None) -> None:
        """Wait until every outcome of now is settled, or `timeout` seconds.

        Cancelling abandons the wait.
        """
        if self._open:
            await asyncio.wait(tuple(self._open), timeout=timeout)

    async def submit(
        self, retry: Retry, stream: str, value: bytes, **arguments: Unpack[PublishArguments]
    ) -> asyncio.Future[Ack | None]:
        """Register a message; its future is settled by the last try.

        Cancelling this leaves nothing behind; cancelling the future ends the tries.
        """
        everything = self._publisher.seconds_for(arguments["timeout"], arguments["ack_timeout"])
        message = _Message(stream, value, arguments, everything)
        # Chosen once: a repeat must go where the first try went.
        message.arguments["partition"] = await self._publisher.partition_of(
            stream,
            value,
            key=arguments["key"],
            partition=arguments["partition"],
            partitioner=arguments["partitioner"],
            timeout=arguments["timeout"],
        )
        first = await self._publisher.submit(stream, value, quiet=True, **message.with_time_left())
        outcome: asyncio.Future[Ack | None] = asyncio.get_running_loop().create_future()

        async def follow() -> None:
            await self._follow(outcome, first, retry, message)

        child = self._connection.supervisor.spawn(follow, name=f"publish-retry:{stream}")
        self._open.add(outcome)
        outcome.add_done_callback(lambda _: self._close(outcome, child))
        return outcome

    def _close(self, outcome: asyncio.Future[Ack | None], child: Child) -> None:
        self._open.discard(outcome)
        child.cancel()

    async def _follow(
        self,
        outcome: asyncio.Future[Ack | None],
        attempt: asyncio.Future[Ack | None],
        retry: Retry,
        message: _Message,
    ) -> None:
        try:
            ack = await self._try_until_known(attempt, retry, message)
        except ClientClosed:
            self._fail(outcome, message, PublishOutcomeUnknown(_CLOSED))
        except LiftbridgeError as error:
            self._fail(outcome, message, error)
        else:
            if not outcome.done():
                outcome.set_result(ack)
        finally:
            self._fail(outcome, message, PublishOutcomeUnknown(_CLOSED))

    def _fail(
        self, outcome: asyncio.Future[Ack | None], message: _Message, error: LiftbridgeError
    ) -> None:
        if not outcome.done():
            error.at(message.stream, message.arguments["partition"])
            outcome.set_exception(error)
            correlation_id = message.arguments["correlation_id"] or ""
            if isinstance(error, PublishError):
                correlation_id = error.correlation_id or correlation_id
            self._publisher.outcomes.report(error, correlation_id)
            self._publisher.outcomes.remember(outcome)

    async def _try_until_known(
        self, attempt: asyncio.Future[Ack | None], retry: Retry, message: _Message
    ) -> Ack | None:
        tries = 1
        unknown = False
        while True:
            try:
                return await attempt
            except IncorrectOffset as error:
                if tries == 1:
                    raise
                # An earlier try may have taken the place itself.
                ack = await self._own_message(error, message)
                if ack is None:
                    raise
                return ack
            except PublishOutcomeUnknown as error:
                unknown = True
                delay = retry.backoff.delay(tries - 1, random.random())  # noqa: S311 - jitter
                if tries >= retry.attempts or delay >= message.seconds_left:
                    raise
                self._connection.reporter.retried(Retried("publish", tries, delay, error))
                await asyncio.sleep(delay)
            except LiftbridgeError as error:
                raise _last_word(error, unknown=unknown) from error
            finally:
                attempt.cancel()
            tries += 1
            try:
                attempt = await self._publisher.submit(
                    message.stream, message.value, quiet=True, **message.with_time_left()
                )
            except LiftbridgeError as error:
                raise _last_word(error, unknown=unknown) from error

    async def _own_message(self, error: IncorrectOffset, message: _Message) -> Ack | None:
        """Compare what stands at the expected offset; return its receipt if it is ours."""
        arguments = message.arguments
        offset, partition = arguments["expected_offset"], arguments["partition"]
        if offset is None or partition is None:
            return None
        try:
            stored = await self._read_back(message.stream, partition, offset)
        except LiftbridgeError as failure:
            text = f"the log has moved on, and offset {offset} could not be read back: {failure}"
            raise PublishOutcomeUnknown(text) from failure
        if stored is None:
            return None
        headers = {
            name: content
            for name, content in stored.headers.items()
            if name not in RESERVED_HEADERS
        }
        ours = (message.value, arguments["key"] or b"", dict(arguments["headers"] or {}))
        if (stored.value, stored.key, headers) != ours:
            return None
        logger.debug("offset %d of %s holds an earlier try", offset, message.stream)
        return Ack(
            message.stream,
            stored.subject.removesuffix(f".{partition}") if partition else stored.subject,
            stored.subject,
            offset,
            correlation_id=error.correlation_id,
            ack_policy=arguments["ack_policy"],
            reception_timestamp=stored.timestamp,
        )


def _last_word(error: LiftbridgeError, *, unknown: bool) -> LiftbridgeError:
    """What the last try says goes for all of them only if no earlier one may be stored."""
    if not unknown:
        return error
    return PublishOutcomeUnknown(f"an earlier try may be stored; the last one failed: {error}")


class _Message:
    """A message that may be sent several times within one span of time."""

    def __init__(
        self, stream: str, value: bytes, arguments: PublishArguments, seconds: float
    ) -> None:
        self.stream = stream
        self.value = value
        self.arguments = arguments
        self._loop = asyncio.get_running_loop()
        self._deadline = self._loop.time() + seconds

    @property
    def seconds_left(self) -> float:
        """Seconds until the time for everything is up."""
        return max(self._deadline - self._loop.time(), 0.0)

    def with_time_left(self) -> PublishArguments:
        """Return the arguments for a try, bounded by what is left of the time for everything."""
        return {**self.arguments, "timeout": self.seconds_left}
