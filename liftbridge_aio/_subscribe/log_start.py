"""Finds out where a log begins and ends, and reads its last messages."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Final, TypeAlias

from liftbridge_aio._core.status import CallFailure, Code, Reach, StreamEnd, error_from, stream_end
from liftbridge_aio.errors import InvalidRequest, LiftbridgeError, PartitionPaused
from liftbridge_aio.model import Message, PartitionInfo, StartAt, StopAt, StreamInfo
from liftbridge_aio.net.network import Network
from liftbridge_aio.wire.rpc import SUBSCRIBE

from .log_probe import LogProbe

Subscribe: TypeAlias = Callable[
    [int, StartAt, StopAt], AbstractAsyncContextManager[AsyncIterable[Message]]
]
"""Makes a subscription to one partition, from a start to a stop."""

logger = logging.getLogger("liftbridge_aio.subscription")

_COMMITTED_WITHIN: Final = 1.0
"""Seconds in which replicas have committed what the leader stores."""
_LOOKED_AT_WITHIN: Final = 4.0
"""Seconds in which the oldest messages of a log arrive, if there are any."""
_WIDER: Final = 4
"""Factor by which each part of a log with gaps is wider than the one before."""
_WORTH_ANOTHER_TRY = frozenset(
    {StreamEnd.LOST, StreamEnd.LOG_CLOSED, StreamEnd.NOT_LEADER, StreamEnd.PAUSED}
)


async def readable_range(network: Network, stream: str, partition: int, timeout: float) -> range:
    """Return the offsets that can be read, from the oldest to the newest committed message.

    Both exist; between them compaction may have left gaps. If nothing is left, the range is empty
    and begins with the next offset. Cancelling abandons the calls.

    Raises:
        StreamNotFound: no such stream.
        PartitionNotFound: the stream has no such partition.
        LiftbridgeError: the leader did not answer in time.
    """
    return await _bounded(network, stream, partition, None, timeout)


async def settled_state(
    network: Network, stream: str, partition: int, timeout: float
) -> PartitionInfo:
    """Return the leader's state of a partition, once everything that it stores is committed.

    That takes milliseconds, except with a leader that lost its high watermark in a restart and has
    no other replica: it delivers nothing behind its watermark until something is published. After a
    second the state is returned as it is, and a warning is logged. Cancelling abandons the calls.

    Raises:
        LiftbridgeError: the leader did not answer.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _COMMITTED_WITHIN
    state = await network.metadata.partition(stream, partition, timeout)
    stored, attempt = state.newest_offset, 0
    while state.high_watermark < stored and not state.paused:
        attempt += 1
        delay = network.router.delay(attempt)
        if loop.time() + delay > deadline:
            logger.warning(
                "%s/%d has messages up to offset %d, but the server delivers none behind offset %d"
                " until something is published: it lost its high watermark in a restart",
                *(stream, partition, stored, state.high_watermark),
            )
            break
        await asyncio.sleep(delay)
        state = await network.metadata.partition(stream, partition, timeout)
    return state


async def looks_compacted(network: Network, stream: str, partition: int) -> bool:
    """Return True if the oldest messages of a partition show that its stream is compacted.

    False where they do not, or could not be read within 4 seconds: a compacted log may have no
    gaps yet. Cancelling abandons the call.
    """
    leader = network.metadata.snapshot.leader(stream, partition)
    if leader is None:
        return False
    probe = LogProbe(network, network.router.address_of(leader), stream, partition)
    try:
        async with asyncio.timeout(_LOOKED_AT_WITHIN):
            return await network.supervisor.call(probe.shows_compaction, name="compaction")
    except (CallFailure, LiftbridgeError, TimeoutError):
        return False


async def count_ahead(
    network: Network,
    stream: str,
    partition: int,
    position: int | None,
    received: int | None,
    timeout: float,
) -> int:
    """Return how many offsets a reader still has to read, without those that were removed.

    Cancelling abandons the calls.

    Args:
        network: how to reach the leader.
        stream: the stream.
        partition: which of its partitions.
        position: the offset that is delivered next; None: the oldest.
        received: the last offset that the reader received; the log may not have it any more.
        timeout: seconds for everything.

    Raises:
        LiftbridgeError: the leader could not be asked in time.
    """
    position = position or 0
    behind = position if received is None else max(received + 1, position)
    there = await _bounded(network, stream, partition, behind, timeout)
    return behind - position + max(there.stop - max(there.start, behind), 0)


async def last_messages(
    network: Network,
    subscribe: Subscribe,
    stream: str,
    partition: int | None,
    count: int,
    timeout: float,
    *,
    unpause: bool,
    filtered: bool,
) -> list[Message]:
    """Read the last `count` messages below the high watermark, the oldest of them first.

    Reads the end of the log and, where too few messages are left there, wider and wider parts
    before it. Cancelling abandons the calls.

    Args:
        network: how to reach the leader.
        subscribe: makes a subscription to the partition.
        stream: the stream.
        partition: which of its partitions; None is the only one of the stream.
        count: how many messages, at most.
        timeout: seconds for everything.
        unpause: True if subscriptions resume the partition where it is paused.
        filtered: True if subscriptions do not show every message.

    Raises:
        InvalidRequest: the stream has several partitions, and none is named.
        PartitionPaused: the partition is paused, and they do not resume it.
        LiftbridgeError: it could not be read in time.
    """
    text = "the last messages could not be read"
    async with network.bounded(
        timeout, text, call=SUBSCRIBE.name, stream=stream, partition=partition
    ):
        info = await network.metadata.stream(stream, timeout)
        if partition is None:
            partition = _only(info)
        state = await settled_state(network, stream, partition, timeout)
        if state.paused and not unpause:
            raise PartitionPaused("the partition is paused", stream=stream, partition=partition)
        found: list[Message] = []
        if state.high_watermark < 0:
            return found
        there = await readable_range(network, stream, partition, timeout)
        highest, width = there.stop - 1, count
        while highest >= there.start and len(found) < count:
            lowest = max(highest - width + 1, there.start)
            part: deque[Message] = deque(maxlen=count - len(found))
            span = StartAt.offset(lowest), StopAt.offset(highest)
            async with subscribe(partition, *span) as reader:
                async for message in reader:
                    part.append(message)
            found = [*part, *found]
            if not found and not filtered:
                break  # the newest message is kept as long as any is
            highest, width = lowest - 1, width * _WIDER
        return found


def _only(info: StreamInfo) -> int:
    """Return the only partition of a stream.

    Raises:
        InvalidRequest: it has several.
    """
    if len(info.partitions) > 1:
        text = f"the stream has {len(info.partitions)} partitions: name one with partition="
        raise InvalidRequest(text, stream=info.name)
    return 0


async def _bounded(
    network: Network, stream: str, partition: int, needed: int | None, timeout: float
) -> range:
    text = "the leader did not say what can be read"
    async with network.bounded(
        timeout, text, call=SUBSCRIBE.name, stream=stream, partition=partition
    ):
        return await _range(network, stream, partition, needed, timeout)


async def _range(
    network: Network, stream: str, partition: int, needed: int | None, timeout: float
) -> range:
    tries = 0
    while True:
        state = await network.metadata.partition(stream, partition, timeout)
        end = state.high_watermark + 1
        if end <= (needed or 0):
            return range(end, end)
        try:
            oldest = await network.supervisor.call(
                _oldest, network, stream, partition, state, name="log-start"
            )
        except CallFailure as failure:
            refusal = stream_end(failure)
            if refusal is StreamEnd.NOT_FOUND:
                network.metadata.mark_missing(stream)
            elif refusal not in _WORTH_ANOTHER_TRY or failure.tls_failed:
                raise error_from(
                    SUBSCRIBE.name, failure, stream=stream, partition=partition
                ) from failure
            tries += 1
            await asyncio.sleep(network.router.delay(tries))
            await network.metadata.refresh([stream])
        else:
            return range(min(oldest, end), end)


async def _oldest(network: Network, stream: str, partition: int, state: PartitionInfo) -> int:
    leader = network.metadata.snapshot.leader(stream, partition)
    if leader is None:
        raise CallFailure(
            Code.UNAVAILABLE, "the partition has no leader whose address is known", Reach.NOT_SENT
        )
    probe = LogProbe(network, network.router.address_of(leader), stream, partition)
    oldest = await probe.oldest_offset()
    if oldest:
        return oldest
    if not state.paused and not await probe.is_emptied(state.newest_offset):
        return 0
    nothing = state.high_watermark + 1
    try:
        first = await probe.first_place(0, state.high_watermark)
    except CallFailure as failure:
        # A paused partition refuses readers at once if there is something to read, otherwise when
        # they begin to wait.
        refusals = {StreamEnd.LOG_CLOSED: 0, StreamEnd.PAUSED: nothing} if state.paused else {}
        oldest = refusals.get(stream_end(failure))
        if oldest is None:
            raise
        return oldest
    return nothing if first is None else first[0]
