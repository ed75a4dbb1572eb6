"""What there is to read: partitions, where their logs begin and end, and offsets by time.

All of it is asked of the servers, with the client; nothing is kept.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from liftbridge_aio.client import Client
from liftbridge_aio.errors import NotFound, SubscriptionLost
from liftbridge_aio.model import Message, StartAt, StopAt
from liftbridge_aio.options import timer_seconds

from .data_loss import LogState
from .offsets import StreamPartition
from .selection import Assigned, Pattern, Selection, Streams

T = TypeVar("T")

logger = logging.getLogger("liftbridge_aio.spark")

_AT_ONCE: Final = 64
"""Partitions that are asked about at the same time."""
_BETWEEN_LOOKS: Final = 0.1
"""Seconds between two looks for a stream that should be there. A server that was started again
answers before it remembers its streams: v1.9.0 knows none for about two seconds."""
_SILENCE: Final = 3.0
"""Seconds without a message after which a log that should have one counts as emptied: servers do
not say so, and send the first message of any other within milliseconds."""
_LOOKS: Final = 10
"""How often silence is waited for. Servers that clean their logs cut readers off, and while a
reader is being resumed silence says nothing."""
_SAMPLE: Final = 64
"""Messages of a partition that are looked at for their size."""
_SAMPLED: Final = 16
"""Partitions of which messages are looked at for their size."""


@dataclass(frozen=True, slots=True)
class Survey:
    """The streams of a selection at a moment."""

    counts: Mapping[str, int]
    """Partitions of each stream that exists, of those asked about."""
    created: Mapping[str, int]
    """When each was created, in Unix nanoseconds: tells a stream from a later one of its name."""


async def survey(
    client: Client, selection: Selection, known: Collection[str] | None = None
) -> Survey:
    """Ask which of the selected streams exist. Cancelling abandons the call.

    Streams that should exist are asked for again for `not_found_timeout` seconds.

    Args:
        client: connected.
        selection: what is read; a pattern asks about every stream there is.
        known: streams that exist as far as anybody knows, to ask about beside. None: nobody knows,
            so those that the selection names should exist, and any stream at all for a pattern.

    Raises:
        LiftbridgeError: no server answered.
    """
    match selection:
        case Pattern():
            named = None
        case Streams(names=streams):
            named = frozenset(streams)
        case Assigned(places=places):
            named = frozenset(place.stream for place in places)
    names = None if named is None else sorted(named.union(known or ()))
    expected = named if known is None else frozenset(known)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timer_seconds(client.options.not_found_timeout)
    while True:
        found = (await client.fetch_metadata(names)).streams
        complete = bool(found) if expected is None else expected <= found.keys()
        if complete or loop.time() >= deadline:
            break
        await asyncio.sleep(_BETWEEN_LOOKS)
    asked = found if names is None else {name: found[name] for name in names if name in found}
    return Survey(
        {name: len(info.partitions) for name, info in asked.items()},
        {name: info.creation_timestamp for name, info in asked.items()},
    )


async def log_states(
    client: Client, places: Collection[StreamPartition]
) -> dict[StreamPartition, LogState]:
    """Ask the leader of each partition where its log ends. Cancelling abandons the calls.

    Where the logs begin is not asked: `earliest` is 0.

    Raises:
        NotFound: a server said for `not_found_timeout` seconds that there is no such partition.
        LiftbridgeError: a leader could not be reached.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timer_seconds(client.options.not_found_timeout)

    async def state_of(place: StreamPartition) -> LogState:
        while True:
            try:
                state = await client.fetch_partition_metadata(*place)
            except NotFound:
                if loop.time() >= deadline:
                    raise
                await asyncio.sleep(_BETWEEN_LOOKS)
            else:
                return LogState(0, state.high_watermark + 1, state.newest_offset + 1)

    return await _for_each(places, state_of)


async def oldest_offsets(
    client: Client, ends: Mapping[StreamPartition, int]
) -> dict[StreamPartition, int]:
    """Find the oldest offset that each partition still holds; its end where it holds none.

    That it holds none is only known by its silence, so a warning says so. Cancelling abandons the
    readings.

    Args:
        client: connected.
        ends: the offset behind the newest committed message of each partition.

    Raises:
        LiftbridgeError: a partition could not be read.
    """

    async def oldest(place: StreamPartition) -> int:
        end = ends[place]
        message = await first_message(client, place, 0, end)
        if message is not None:
            return message.offset
        if end:
            logger.warning(
                "%s gives none of its offsets below %s: retention emptied it", place, end
            )
        return end

    return await _for_each(ends, oldest)


async def offsets_at(
    client: Client, ends: Mapping[StreamPartition, int], timestamps: Mapping[StreamPartition, int]
) -> dict[StreamPartition, int | None]:
    """Find the first offset of each partition whose message is not older than a time.

    Halves the log by itself: servers look times up too, but miss messages next to the border of
    two segments (W23). Cancelling abandons the readings.

    Args:
        client: connected.
        ends: the offset behind the newest committed message of each partition.
        timestamps: Unix nanoseconds for each of the same partitions.

    Returns:
        None for a partition whose messages are all older, or which holds none.

    Raises:
        LiftbridgeError: a partition could not be read.
    """

    async def offset_at(place: StreamPartition) -> int | None:
        found: int | None = None
        low, high = 0, ends[place]
        while low < high:
            middle = (low + high) // 2 if low else 0  # the first look finds where the log begins
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
    """Find out how large messages are about, from the first few between some positions.

    Cancelling abandons the readings.

    Args:
        client: connected.
        starts: positions behind which there are messages.
        ends: where each of these partitions ends.

    Returns:
        Bytes of a key and a value; 0 where there was no message.

    Raises:
        LiftbridgeError: a partition could not be read.
    """

    async def sample(place: StreamPartition) -> list[Message]:
        return await first_messages(client, place, starts[place], ends[place], _SAMPLE)

    samples = await _for_each(list(starts)[:_SAMPLED], sample)
    sizes = [
        len(message.key) + len(message.value)
        for messages in samples.values()
        for message in messages
    ]
    return sum(sizes) / max(len(sizes), 1)


async def first_message(
    client: Client, place: StreamPartition, start: int, end: int
) -> Message | None:
    """Read the first message from one offset up to, but without, another; None: there is none.

    Cancelling abandons the reading.

    Raises:
        LiftbridgeError: the partition could not be read.
    """
    messages = await first_messages(client, place, start, end, 1)
    return messages[0] if messages else None


async def first_messages(
    client: Client, place: StreamPartition, start: int, end: int, most: int
) -> list[Message]:
    """Read the first few messages from one offset up to, but without, another.

    Cancelling abandons the reading.

    Raises:
        LiftbridgeError: the partition could not be read.
    """
    found: list[Message] = []
    if start >= end:
        return found
    bounds = StartAt.offset(start), StopAt.offset(end - 1)
    async with client.subscribe(*place, *bounds, resume=True) as reading:
        batches = reading.batches(most)
        breaks = 0
        for _ in range(_LOOKS):
            silence = asyncio.timeout(_SILENCE)
            try:
                async with silence:
                    while len(found) < most:
                        found += await anext(batches)
                break
            except StopAsyncIteration:
                break
            except TimeoutError:
                if not silence.expired():
                    raise
            before, breaks = breaks, reading.statistics().resubscriptions
            if reading.connected and breaks == before:
                await log_states(client, [place])  # raises where the silence is the leader's
                break
        else:
            text = f"readers were cut off for {_LOOKS * _SILENCE:g} s"
            raise SubscriptionLost(
                text, stream=place.stream, partition=place.partition, offset=start
            )
    return found[:most]


async def _for_each(
    places: Iterable[StreamPartition],
    ask: Callable[[StreamPartition], Coroutine[Any, Any, T]],
) -> dict[StreamPartition, T]:
    """Ask about some partitions at a time; the first failure ends it."""
    room = asyncio.Semaphore(_AT_ONCE)

    async def in_turn(place: StreamPartition) -> T:
        async with room:
            return await ask(place)

    try:
        async with asyncio.TaskGroup() as tasks:
            asked = {place: tasks.create_task(in_turn(place)) for place in places}
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from group.exceptions[0].__cause__
    return {place: task.result() for place, task in asked.items()}
