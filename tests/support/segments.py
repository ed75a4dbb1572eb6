"""Streams whose logs are cleaned soon, and what is left of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

from grpclib.const import Status

from liftbridge_aio.wire import proto, rpc
from support.raw import (
    BOUND,
    FROM_EARLIEST,
    TO_LATEST,
    End,
    Ended,
    Subscription,
    Wire,
    eventually,
    message,
)

CLEANER_INTERVAL: Final = 200
"""In milliseconds: long enough to publish a few messages before it. v1.9.0 ends as a process where
the cleaner and a publish begin a segment at the same moment."""

MAX_AGE: Final = 200
"""In milliseconds: what is older is forgotten, where tests want that."""

BEING_CLEANED: Final = End(
    Status.INTERNAL, "Failed to create stream reader: segment has been closed"
)
READ_TO_ITS_END: Final = End(Status.RESOURCE_EXHAUSTED, "End of readonly partition")


def int64(value: int) -> proto.NullableInt64:
    """A setting that is given."""
    return proto.NullableInt64(value=value)


def record_bytes(subject: str, key: bytes = b"", value: bytes = b"") -> int:
    """Size in a segment of a message without headers: the server adds two headers to it."""
    headers = (6 + len("subject") + len(subject)) + (6 + len("reply"))
    return 44 + len(key) + len(value) + headers


async def create(
    wire: Wire,
    stream: str,
    *,
    segment_bytes: int = 1,
    cleaner_interval: int = CLEANER_INTERVAL,
    **limits: int,
) -> None:
    """Create a stream of small segments: of one message each, unless told."""
    settings: dict[str, Any] = {name: int64(value) for name, value in limits.items()}
    await wire.create(
        stream,
        segment_max_bytes=int64(segment_bytes),
        cleaner_interval=int64(cleaner_interval),
        **settings,
    )


async def create_compacted(wire: Wire, stream: str, *, segment_bytes: int = 1) -> None:
    """Create a stream that is compacted soon."""
    await wire.create(
        stream,
        segment_max_bytes=int64(segment_bytes),
        cleaner_interval=int64(CLEANER_INTERVAL),
        compact_enabled=proto.NullableBool(value=True),
    )


async def publish_keys(wire: Wire, stream: str, keys: str) -> None:
    """Publish one empty message for each letter; `-` is no key."""
    for key in keys:
        given = b"" if key == "-" else key.encode()
        await wire.call(rpc.PUBLISH, message(stream, key=given))


async def cleaner_has_been_at_work(wire: Wire, stream: str) -> None:
    """Wait until every log that exists has been cleaned several times, `MAX_AGE` from now."""
    control = f"{stream}-control"
    await create(wire, control, retention_max_age=MAX_AGE + 4 * CLEANER_INTERVAL)
    await wire.publish(control, b"")
    await becomes_empty(wire, control)
    await wire.pause(control)


async def becomes_empty(wire: Wire, stream: str) -> None:
    """Make a stream read-only and wait until nothing is stored in it.

    Only a read-only one says so: others let readers wait.
    """
    await wire.set_readonly(stream)

    async def is_empty() -> bool:
        return await offsets(wire, stream, **FROM_EARLIEST) == ([], READ_TO_ITS_END)

    await eventually(is_empty)


async def becomes_emptied(wire: Wire, stream: str, next_offset: int) -> None:
    """Wait until retention has taken every message before `next_offset`, the next one to come.

    A refused subscription tells where it would start: from the earliest and from the time 0.
    """

    async def is_empty() -> bool:
        from_earliest = await starts_at(wire, stream, 0, **FROM_EARLIEST)
        return from_earliest and await starts_at(wire, stream, next_offset, **from_time(0))

    await eventually(is_empty)


async def begins_empty_segment(wire: Wire, stream: str, newest: int, timestamp: int) -> None:
    """Wait until the cleaner has begun a segment behind the newest message, of this time."""

    async def has_begun() -> bool:
        return await starts_at(wire, stream, newest + 1, **from_time(timestamp))

    await eventually(has_begun)


def from_time(timestamp: int) -> dict[str, Any]:
    """Start position by time, in Unix nanoseconds."""
    return {
        "start_position": proto.StartPosition.TIMESTAMP,
        "start_timestamp": timestamp,
    }


async def starts_at(wire: Wire, stream: str, offset: int, **start: Any) -> bool:
    """Return True if the server starts a reading at an offset; it is asked by a refused one."""
    try:
        async with wire.subscribe(stream, **start, **to_offset(-2)):
            return False
    except Ended as ended:
        return ended.end.text.endswith(f": -2 < {offset}")


@asynccontextmanager
async def subscribe(wire: Wire, stream: str, **positions: Any) -> AsyncIterator[Subscription]:
    """A subscription; who comes while the cleaner closes segments is refused and tries again."""
    async with AsyncExitStack() as stack:
        async with asyncio.timeout(BOUND):
            while True:
                try:
                    subscription = await stack.enter_async_context(
                        wire.subscribe(stream, **positions)
                    )
                    break
                except Ended as ended:
                    if ended.end != BEING_CLEANED:
                        raise
        yield subscription


async def offsets(wire: Wire, stream: str, **positions: Any) -> tuple[list[int], End]:
    """The offsets of a subscription that ends by itself, and its end."""
    async with asyncio.timeout(BOUND):
        while True:
            async with subscribe(wire, stream, **positions) as subscription:
                messages, end = await subscription.rest()
            if not is_disturbed(end):
                return [message.offset for message in messages], end


async def first_offsets(wire: Wire, stream: str, count: int, **positions: Any) -> list[int]:
    """The first offsets of a subscription that need not end."""
    async with asyncio.timeout(BOUND):
        while True:
            try:
                async with subscribe(wire, stream, **positions) as subscription:
                    return [message.offset for message in await subscription.take(count)]
            except Ended as ended:
                if not is_disturbed(ended.end):
                    raise


def is_disturbed(end: End) -> bool:
    """Return True if the cleaner of a real server closed the segment that was being read."""
    return end.status is Status.UNKNOWN and "segment has been closed" in end.text


async def kept(wire: Wire, stream: str) -> list[int]:
    """Return the offsets that are stored now."""
    return (await offsets(wire, stream, **FROM_EARLIEST, **TO_LATEST))[0]


def from_offset(start: int) -> dict[str, Any]:
    """The positions of a reader that starts at an offset."""
    return {"start_position": proto.StartPosition.OFFSET, "start_offset": start}


def to_offset(stop: int) -> dict[str, Any]:
    """The positions of a reader that stops at an offset."""
    return {"stop_position": proto.StopPosition.STOP_OFFSET, "stop_offset": stop}


async def become(wire: Wire, stream: str, expected: list[int]) -> None:
    """Wait until just this is stored.

    Raises:
        AssertionError: It never was.
    """
    found: list[int] = []

    async def as_expected() -> bool:
        nonlocal found
        found = await kept(wire, stream)
        return found == expected

    try:
        await eventually(as_expected)
    except TimeoutError:
        assert found == expected
