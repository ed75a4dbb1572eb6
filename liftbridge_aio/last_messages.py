"""The last messages of a partition, also where compaction and retention have left gaps."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Final

from .errors import LiftbridgeError, PartitionPaused
from .model import Message, StartAt, StopAt
from .net.connection import Connection

if TYPE_CHECKING:
    from .subscription import Subscription

_SILENCE: Final = 1.5
"""Seconds without a first message that make one silence."""
_SILENCES: Final = 2
"""Silences after which a log that should have messages counts as emptied."""
_WIDER: Final = 4
"""How many times as wide each look at a log with gaps is as the one before."""


async def last_messages(
    connection: Connection,
    subscribe: Callable[[StartAt, StopAt], Subscription],
    stream: str,
    partition: int,
    count: int,
    timeout: float,
) -> list[Message]:
    """Read the last `count` committed messages, the oldest of them first.

    Looks at the end of the log and, where too few messages are left there, at wider and wider
    parts before it. Cancelling abandons the reading.

    Args:
        connection: whose metadata tells where the log ends.
        subscribe: makes a subscription to the partition.
        stream: what to read.
        partition: which of its partitions.
        count: how many messages, at most.
        timeout: seconds for each question.

    Raises:
        PartitionPaused: the partition is paused.
        LiftbridgeError: it could not be read.
    """
    await connection.metadata.stream(stream)
    state = await connection.metadata.partition(stream, partition, timeout)
    if state.paused:
        raise PartitionPaused("the partition is paused", stream=stream, partition=partition)
    found: list[Message] = []
    highest, width = state.high_watermark, count

    async def still_there() -> object:
        return await connection.metadata.partition(stream, partition, timeout)

    while highest >= 0 and len(found) < count:
        lowest = max(highest - width + 1, 0)
        part: deque[Message] = deque(maxlen=count - len(found))
        async with subscribe(StartAt.offset(lowest), StopAt.offset(highest)) as reading:
            async for message in reading if found else _unless_emptied(reading, still_there):
                part.append(message)
        found = [*part, *found]
        if not found:
            break  # the newest message is kept as long as any is
        highest, width = lowest - 1, width * _WIDER
    return found


async def _unless_emptied(
    reading: Subscription, still_there: Callable[[], Awaitable[object]]
) -> AsyncIterator[Message]:
    """Read to the end, or not at all where retention has taken everything.

    Servers do not say so, but they send the first message of any other log within milliseconds.
    Silence counts twice, with an answer to another question between: else the server is stuck.
    """
    silences = 0
    while silences < _SILENCES:
        try:
            async with asyncio.timeout(_SILENCE):
                first = await anext(reading, None)
        except TimeoutError as error:
            if isinstance(error, LiftbridgeError):
                raise
            silences += 1
            await still_there()
            continue
        if first is not None:
            yield first
            async for message in reading:
                yield message
        return
