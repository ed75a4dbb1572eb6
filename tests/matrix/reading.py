"""Each kind of reading: those that end by themselves, and those that go on."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Final

from liftbridge_aio import (
    Message,
    StartAt,
    StopAt,
)
from liftbridge_aio.activity_events import CreateStreamEvent
from liftbridge_aio.serializers import BYTES
from matrix.cells import ALL, NOTHING, Cell, On, ended, read_to_end, seen, until_probes
from matrix.operations import operation

BOUNDED: Final = "Reading that ends"
LIVE: Final = "Reading that goes on"
POSITIONS: Final = "Positions"

EARLIEST: Final = StartAt.earliest()
LATEST: Final = StopAt.latest()
CURSOR: Final = "cursor"
ONE: Final = {0: 0}
"""Partition 0 from its beginning."""
_LOOKS: Final = 10
_PAUSE: Final = 0.2
"""Seconds between two looks for an event."""


def first_of(cell: Cell) -> int:
    """The offset of the oldest message of partition 0."""
    return min(cell.place.logs.get(0, {}), default=0)


def last_of(cell: Cell) -> int:
    """The offset of the newest message of partition 0."""
    return max(cell.place.logs.get(0, {}), default=0)


# Bounded


@operation(BOUNDED, "read()", on=On.SHARED)
async def read(cell: Cell) -> str:
    reading = cell.user.read(cell.stream, partition=0)
    return seen(cell, [message async for message in reading], start=ONE)


@operation(BOUNDED, "read() of all partitions", on=On.SHARED)
async def read_all_partitions(cell: Cell) -> str:
    reading = cell.user.read(cell.stream)
    return seen(cell, [message async for message in reading])


@operation(BOUNDED, "from latest to latest", on=On.SHARED)
async def read_the_latest(cell: Cell) -> str:
    reading = cell.user.subscribe(cell.stream, partition=0, start=StartAt.latest(), stop=LATEST)
    messages = [message async for message in reading]
    return seen(cell, messages, start={0: last_of(cell)}) if messages else NOTHING


@operation(BOUNDED, "to an offset", on=On.SHARED)
async def read_to_an_offset(cell: Cell) -> str:
    reading = cell.user.subscribe(cell.stream, partition=0, start=EARLIEST, stop=StopAt.offset(2))
    messages = [message async for message in reading]
    log = {offset: value for offset, value in cell.place.logs[0].items() if offset <= 2}
    found = {message.offset: message.value for message in messages}
    if found != log:
        return f"read {found} instead of {log}"
    return ALL if log else NOTHING


@operation(BOUNDED, "to a time", on=On.SHARED)
async def read_to_a_time(cell: Cell) -> str:
    reading = cell.user.subscribe(
        cell.stream, partition=0, start=EARLIEST, stop=StopAt.time(datetime.now(UTC))
    )
    return seen(cell, [message async for message in reading], start=ONE)


@operation(BOUNDED, "in reverse", on=On.SHARED)
async def read_in_reverse(cell: Cell) -> str:
    reading = cell.user.subscribe(cell.stream, partition=0, start=StartAt.latest(), reverse=True)
    messages = [message async for message in reading]
    return seen(cell, reversed(messages), start=ONE)


@operation(BOUNDED, "last(3)", on=On.SHARED)
async def read_the_last(cell: Cell) -> str:
    kept = sorted(cell.place.logs.get(0, {}))
    messages = await cell.user.last(cell.stream, partition=0, n=3)
    return seen(cell, messages, start={0: kept[-3] if len(kept) > 3 else 0})


@operation(BOUNDED, "values", on=On.SHARED)
async def read_values(cell: Cell) -> str:
    values = cell.user.values(cell.stream, BYTES)
    reading = values.read(cell.user.read(cell.stream, partition=0))
    return seen(cell, [decoded.message async for decoded in reading], start=ONE)


@operation(BOUNDED, "activity", on=On.SHARED)
async def read_activity(cell: Cell) -> str:
    for _ in range(_LOOKS):  # servers publish an event after they have done what it tells
        async for event in cell.user.activity(start=EARLIEST, stop=LATEST):
            if isinstance(event, CreateStreamEvent) and event.stream == cell.stream:
                return "told"
        await asyncio.sleep(_PAUSE)
    return "not told"


# Live


async def follow(cell: Cell, start: StartAt, first: int, *, unpause: bool = False) -> str:
    """Read from a start on until a probe comes."""
    async with cell.user.subscribe(
        cell.stream, partition=0, start=start, unpause=unpause
    ) as reading:
        result = await until_probes(cell, reading, start={0: first})
    return ended(result, reading.end_reason)


@operation(LIVE, "from new")
async def follow_new(cell: Cell) -> str:
    return await follow(cell, StartAt.new_only(), cell.end_of())


@operation(LIVE, "from latest")
async def follow_latest(cell: Cell) -> str:
    return await follow(cell, StartAt.latest(), last_of(cell))


@operation(LIVE, "from earliest")
async def follow_earliest(cell: Cell) -> str:
    return await follow(cell, EARLIEST, 0)


@operation(LIVE, "from an offset")
async def follow_an_offset(cell: Cell) -> str:
    first = min(1, cell.end_of())  # one that is yet to come is waited for
    return await follow(cell, StartAt.offset(first), first)


@operation(LIVE, "from a time")
async def follow_a_time(cell: Cell) -> str:
    return await follow(cell, StartAt.ago(timedelta(hours=1)), 0)


@operation(LIVE, "unpause=True")
async def follow_resumed(cell: Cell) -> str:
    return await follow(cell, EARLIEST, 0, unpause=True)


@operation(LIVE, "all partitions")
async def follow_all_partitions(cell: Cell) -> str:
    async with cell.user.subscribe(cell.stream, start=EARLIEST) as reading:
        result = await until_probes(cell, reading, start=dict.fromkeys(cell.place.logs, 0))
    reasons = set(reading.end_reasons.values())
    return ended(result, *reasons) if len(reasons) == 1 else result


async def go_on(cell: Cell, *, unpause: bool) -> str:
    """Read everything, and go on when the state has arisen."""
    async with cell.user.subscribe(
        cell.stream, partition=0, start=EARLIEST, unpause=unpause
    ) as reading:
        cell.begun.set()
        first = await read_to_end(cell, reading)
        await cell.until_arisen()
        result = await until_probes(cell, reading, start={0: first})
    return ended(result, reading.end_reason)


@operation(LIVE, "arises meanwhile", midway=True)
async def resubscribe(cell: Cell) -> str:
    return await go_on(cell, unpause=False)


@operation(LIVE, "arises meanwhile, unpause=True", midway=True)
async def resubscribe_and_resume(cell: Cell) -> str:
    return await go_on(cell, unpause=True)


# Positions


@operation(POSITIONS, "seek", midway=True)
async def seek(cell: Cell) -> str:
    async with cell.user.subscribe(cell.stream, partition=0) as reading:
        cell.begun.set()
        await cell.until_arisen()
        await reading.seek(StartAt.earliest())
        result = await until_probes(cell, reading, start=ONE)
    return ended(result, reading.end_reason)


@operation(POSITIONS, "lag", on=On.SHARED)
async def lag(cell: Cell) -> str:
    async with cell.user.subscribe(cell.stream, partition=0, start=StartAt.offset(0)) as reading:
        return f"lag {await reading.lag()}"


@operation(POSITIONS, "set and fetch a cursor", on=On.SHARED)
async def keep_a_cursor(cell: Cell) -> str:
    await cell.user.set_cursor(CURSOR, cell.stream, 0, 2)
    found = await cell.user.fetch_cursor(CURSOR, cell.stream, 0)
    return "kept" if found == 2 else f"found {found}"


@operation(POSITIONS, "subscribe with a cursor", on=On.SHARED)
async def read_with_a_cursor(cell: Cell) -> str:
    messages: list[Message] = []
    for _ in range(2):
        async with cell.user.subscribe(
            cell.stream, partition=0, start=EARLIEST, stop=LATEST, cursor="durable"
        ) as reading:
            async for message in reading:
                messages.append(message)
                if len(messages) == 3:
                    break
    return seen(cell, messages, start=ONE)
