"""Fetch the bounds of logs: partitions, oldest and newest offsets, offsets by time.

Nothing is cached.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from liftbridge_aio._client.client import Client
from liftbridge_aio._runtime.bounded_gather import bounded_gather
from liftbridge_aio.errors import SubscriptionLost
from liftbridge_aio.model import ANY_STREAM, Message, StartAt, StopAt, StreamPartition
from liftbridge_aio.options import UNSET
from liftbridge_aio.spark.core.data_loss import LogState
from liftbridge_aio.spark.core.selection import Assigned, Pattern, Selection, Streams

T = TypeVar("T")

logger = logging.getLogger("liftbridge_aio.spark")

_AT_ONCE: Final = 64
"""Partitions that are looked up concurrently."""
_IDLE_TIMEOUT: Final = 3.0
"""Seconds without a message after which a log counts as emptied by retention: servers do not
report that, and send the first message of any other log within milliseconds."""
_MAX_WAITS: Final = 10
"""The maximum of such waits.

Servers that clean their logs disconnect readers, and no message is expected while a reader is being
resumed.
"""
_SAMPLE_MESSAGES: Final = 64
"""Messages of a partition whose sizes are averaged."""
_SAMPLE_PARTITIONS: Final = 16
"""Partitions whose messages are sampled."""


@dataclass(frozen=True, slots=True)
class SelectedStreams:
    """The existing streams of a selection, at one moment."""

    counts: Mapping[str, int]
    """Number of partitions of each existing stream."""
    created: Mapping[str, int]
    """Creation times in Unix nanoseconds, which tell a stream from a later one of its name."""


async def fetch_selected(
    client: Client,
    selection: Selection,
    known: Collection[str] | None = None,
    *,
    timeout: float | None = None,
) -> SelectedStreams:
    """Fetch which of the selected streams exist. Cancelling abandons the call.

    Streams that should exist are looked up again until they count as gone: a restarted server
    answers before it knows its streams.

    Args:
        client: connected.
        selection: what is read; a pattern fetches all streams.
        timeout: seconds in all; None is the client's call_timeout.
        known: further streams to fetch; these should exist, others may not. None: the streams that
            the selection names should exist, or any stream if it is a pattern.

    Raises:
        LiftbridgeError: no server answered, or not for long enough to know that a stream is gone.
    """
    match selection:
        case Pattern():
            named = None
        case Streams(names=streams):
            named = frozenset(streams)
        case Assigned(places=places):
            named = frozenset(place.stream for place in places)
    names = None if named is None else sorted(named.union(known or ()))
    expected = (named or {ANY_STREAM}) if known is None else frozenset(known)
    found = (await client.fetch_metadata(names, expected=expected, timeout=timeout)).streams
    selected = found if names is None else {name: found[name] for name in names if name in found}
    return SelectedStreams(
        {name: len(info.partitions) for name, info in selected.items()},
        {name: info.creation_timestamp for name, info in selected.items()},
    )


async def log_states(
    client: Client, places: Collection[StreamPartition], *, timeout: float | None = None
) -> dict[StreamPartition, LogState]:
    """Fetch from each partition's leader where its log ends. Cancelling abandons the calls.

    Where the logs begin is not fetched: `earliest` is 0.

    Args:
        client: connected.
        places: the partitions.
        timeout: seconds for each of them; None is the client's call_timeout.

    Raises:
        NotFound: a partition does not exist.
        LiftbridgeError: a leader could not be reached.
    """

    async def state_of(place: StreamPartition) -> LogState:
        state = await client.fetch_partition_metadata(*place, timeout=timeout)
        return LogState(0, state.high_watermark + 1, state.newest_offset + 1)

    return await _for_each(places, state_of)


async def oldest_offsets(
    client: Client, ends: Mapping[StreamPartition, int], *, timeout: float | None = None
) -> dict[StreamPartition, int]:
    """Find the oldest stored offset of each partition; its end if it stores no message.

    That a log is empty is only concluded from a timeout, so it is logged as a warning. Cancelling
    abandons the reads.

    Args:
        client: connected.
        ends: the offset after the newest committed message of each partition.
        timeout: seconds for which servers may be unreachable; None: the client's option.

    Raises:
        LiftbridgeError: a partition could not be read.
    """

    async def oldest(place: StreamPartition) -> int:
        end = ends[place]
        message = await first_message(client, place, 0, end, timeout=timeout)
        if message is not None:
            return message.offset
        if end:
            logger.warning(
                "%s sent no message below offset %s: retention removed them all", place, end
            )
        return end

    return await _for_each(ends, oldest)


async def offsets_at(
    client: Client, ends: Mapping[StreamPartition, int], timestamps: Mapping[StreamPartition, int]
) -> dict[StreamPartition, int | None]:
    """Find the first offset of each partition whose message is not older than a time.

    Does a binary search, as the servers' own lookup by time misses messages at the boundary of two
    segments. Cancelling abandons the reads.

    Args:
        client: connected.
        ends: the offset after the newest committed message of each partition.
        timestamps: Unix nanoseconds for each of the same partitions.

    Returns:
        None for a partition that is empty or has only older messages.

    Raises:
        LiftbridgeError: a partition could not be read.
    """

    async def offset_at(place: StreamPartition) -> int | None:
        found: int | None = None
        low, high = 0, ends[place]
        while low < high:
            middle = (low + high) // 2 if low else 0  # the first step finds where the log begins
            message = await first_message(client, place, middle, high)
            if message is None:
                high = middle
            elif message.timestamp >= timestamps[place]:
                found, high = message.offset, middle
            else:
                low = message.offset + 1
        return found

    return await _for_each(ends, offset_at)


async def average_bytes(
    client: Client,
    starts: Mapping[StreamPartition, int],
    ends: Mapping[StreamPartition, int],
) -> float:
    """Estimate the size of messages from the first few after some positions.

    Cancelling abandons the reads.

    Args:
        client: connected.
        starts: positions after which there are messages.
        ends: where each of these partitions ends.

    Returns:
        Average bytes of a key and a value; 0 if there was no message.

    Raises:
        LiftbridgeError: a partition could not be read.
    """

    async def sample(place: StreamPartition) -> list[Message]:
        return await first_messages(client, place, starts[place], ends[place], _SAMPLE_MESSAGES)

    samples = await _for_each(list(starts)[:_SAMPLE_PARTITIONS], sample)
    sizes = [
        len(message.key) + len(message.value)
        for messages in samples.values()
        for message in messages
    ]
    return sum(sizes) / max(len(sizes), 1)


async def first_message(
    client: Client, place: StreamPartition, start: int, end: int, *, timeout: float | None = None
) -> Message | None:
    """Read the first message from `start` to `end`, exclusive; None if there is none.

    Cancelling abandons the read. For `timeout` see `oldest_offsets`.

    Raises:
        LiftbridgeError: the partition could not be read.
    """
    messages = await first_messages(client, place, start, end, 1, timeout=timeout)
    return messages[0] if messages else None


async def first_messages(
    client: Client,
    place: StreamPartition,
    start: int,
    end: int,
    most: int,
    *,
    timeout: float | None = None,
) -> list[Message]:
    """Read the first few messages from `start` to `end`, exclusive.

    Cancelling abandons the read. For `timeout` see `oldest_offsets`.

    Raises:
        LiftbridgeError: the partition could not be read.
    """
    found: list[Message] = []
    if start >= end:
        return found
    subscription = client.subscribe(
        place.stream,
        partition=place.partition,
        start=StartAt.offset(start),
        stop=StopAt.offset(end - 1),
        resubscribe_timeout=UNSET if timeout is None else timeout,
        unpause=True,
        timeout=timeout,
    )
    async with subscription:
        batches = subscription.batches(most)
        breaks = 0
        for _ in range(_MAX_WAITS):
            idle = asyncio.timeout(_IDLE_TIMEOUT)
            try:
                async with idle:
                    while len(found) < most:
                        found += await anext(batches)
                break
            except StopAsyncIteration:
                break
            except TimeoutError:
                if not idle.expired():
                    raise
            before, breaks = breaks, subscription.statistics().resubscriptions
            if subscription.connected and breaks == before:
                # Raises if the leader does not answer.
                await log_states(client, [place], timeout=timeout)
                break
        else:
            raise SubscriptionLost(
                f"readers were disconnected again and again for {_MAX_WAITS * _IDLE_TIMEOUT:g} s",
                stream=place.stream,
                partition=place.partition,
                offset=start,
            )
    return found[:most]


async def _for_each(
    places: Collection[StreamPartition], fetch: Callable[[StreamPartition], Awaitable[T]]
) -> dict[StreamPartition, T]:
    """Await `fetch` for each partition, some at a time; the first failure cancels the rest."""
    fetched = await bounded_gather(places, fetch, limit=_AT_ONCE, finish_all=False)
    return dict(zip(places, fetched, strict=True))
