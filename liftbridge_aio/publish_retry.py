"""Publishing again when the outcome is unknown, and finding out what became of the first try."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import TypedDict, Unpack

from .errors import IncorrectOffset, LiftbridgeError, PublishOutcomeUnknown
from .model import RESERVED_HEADERS, Ack, AckPolicy, Message, Partitioner
from .net.connection import Connection
from .net.supervisor import Child
from .options import Duration
from .publisher import Publisher
from .retry import Retry
from .telemetry import Retried

logger = logging.getLogger("liftbridge_aio.publisher")

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

    @property
    def unsettled(self) -> tuple[asyncio.Future[Ack | None], ...]:
        """The outcomes that are still open."""
        return tuple(self._open)

    async def submit(
        self, retry: Retry, stream: str, value: bytes, **arguments: Unpack[PublishArguments]
    ) -> asyncio.Future[Ack | None]:
        """Register a message; its future is settled by the last try.

        Cancelling this leaves nothing behind; cancelling the future ends the tries.
        """
        first = await self._publisher.submit(stream, value, **arguments)
        outcome: asyncio.Future[Ack | None] = asyncio.get_running_loop().create_future()

        async def follow() -> None:
            await self._follow(outcome, first, retry, stream, value, arguments)

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
        stream: str,
        value: bytes,
        arguments: PublishArguments,
    ) -> None:
        try:
            ack = await self._try_until_known(attempt, retry, stream, value, arguments)
        except LiftbridgeError as error:
            if not outcome.done():
                outcome.set_exception(error)
        else:
            if not outcome.done():
                outcome.set_result(ack)
        finally:
            attempt.cancel()
            if not outcome.done():
                outcome.set_exception(
                    PublishOutcomeUnknown("the client was closed while it retried", stream=stream)
                )

    async def _try_until_known(
        self,
        attempt: asyncio.Future[Ack | None],
        retry: Retry,
        stream: str,
        value: bytes,
        arguments: PublishArguments,
    ) -> Ack | None:
        tries = 1
        while True:
            try:
                return await attempt
            except IncorrectOffset as error:
                if tries == 1:
                    raise
                # An earlier try may have taken the place itself.
                ack = await self._own_message(error, stream, value, arguments)
                if ack is None:
                    raise
                return ack
            except PublishOutcomeUnknown as error:
                if tries >= retry.attempts:
                    raise
                delay = retry.backoff.delay(tries - 1, random.random())  # noqa: S311 - jitter
                self._connection.reporter.retried(Retried("publish", tries, delay, error))
                await asyncio.sleep(delay)
            tries += 1
            attempt = await self._publisher.submit(stream, value, **arguments)

    async def _own_message(
        self, error: IncorrectOffset, stream: str, value: bytes, arguments: PublishArguments
    ) -> Ack | None:
        """Compare what stands at the expected offset; return its receipt if it is ours."""
        offset, partition = arguments["expected_offset"], error.partition
        if offset is None or partition is None:
            return None
        stored = await self._read_back(stream, partition, offset)
        if stored is None:
            return None
        headers = {
            name: content
            for name, content in stored.headers.items()
            if name not in RESERVED_HEADERS
        }
        ours = (value, arguments["key"] or b"", dict(arguments["headers"] or {}))
        if (stored.value, stored.key, headers) != ours:
            return None
        logger.debug("found the message of an earlier try at %s/%d@%d", stream, partition, offset)
        return Ack(
            stream,
            stored.subject.removesuffix(f".{partition}") if partition else stored.subject,
            stored.subject,
            offset,
            correlation_id=error.correlation_id,
            ack_policy=arguments["ack_policy"],
            reception_timestamp=stored.timestamp,
        )
