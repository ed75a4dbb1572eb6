"""The ends of subscriptions: read-only, deleted and paused partitions."""

from __future__ import annotations

from typing import Any

import pytest
from grpclib.const import Status

from liftbridge_aio.wire import proto
from support.raw import FROM_EARLIEST, STOP_REACHED, TO_LATEST, End, Ended, Wire

Start = proto.StartPosition
END_OF_READONLY = End(Status.RESOURCE_EXHAUSTED, "End of readonly partition")
DELETED = End(Status.NOT_FOUND, "commit log was deleted")
CLOSED = End(Status.FAILED_PRECONDITION, "commit log was closed")
STREAM_EMPTY = End(Status.RESOURCE_EXHAUSTED, "Stream is empty")
SEGMENT_CLOSED = "segment has been closed"
NEW_ONLY = {"start_position": Start.NEW_ONLY}
LATEST = {"start_position": Start.LATEST}


async def read_out(wire: Wire, stream: str, **fields: Any) -> tuple[list[int], End]:
    """The offsets of a subscription and how it ended, be it before its handshake."""
    try:
        async with wire.subscribe(stream, **fields) as subscription:
            messages, end = await subscription.rest()
    except Ended as ended:
        return [], ended.end
    return [message.offset for message in messages], end


def to_offset(offset: int) -> dict[str, Any]:
    return {"stop_position": proto.StopPosition.STOP_OFFSET, "stop_offset": offset}


def from_offset(offset: int) -> dict[str, Any]:
    return {"start_position": Start.OFFSET, "start_offset": offset}


BACKWARDS = "Stop offset is before start offset:"


@pytest.mark.parametrize(
    ("positions", "offsets", "end"),
    [
        pytest.param(FROM_EARLIEST, [0, 1, 2], STOP_REACHED, id="earliest"),
        pytest.param(LATEST, [2], STOP_REACHED, id="latest"),
        pytest.param(FROM_EARLIEST | to_offset(1), [0, 1], STOP_REACHED, id="earliest-1"),
        pytest.param(
            FROM_EARLIEST | to_offset(9), [0, 1, 2], END_OF_READONLY, id="earliest-beyond"
        ),
        pytest.param(FROM_EARLIEST | TO_LATEST, [0, 1, 2], STOP_REACHED, id="earliest-latest"),
        pytest.param(
            NEW_ONLY, [], End(Status.INVALID_ARGUMENT, f"{BACKWARDS} 2 < 3"), id="new_only"
        ),
        pytest.param(
            from_offset(9), [], End(Status.INVALID_ARGUMENT, f"{BACKWARDS} 2 < 9"), id="beyond"
        ),
    ],
)
async def test_a_readonly_partition_is_read_to_its_end(
    wire: Wire, stream_name: str, positions: dict[str, Any], offsets: list[int], end: End
) -> None:
    await wire.create(stream_name)
    await wire.publish(stream_name, b"a", b"b", b"c")
    await wire.stored(stream_name, 3)
    await wire.set_readonly(stream_name)

    assert await read_out(wire, stream_name, **positions) == (offsets, end)


@pytest.mark.parametrize(
    ("positions", "end"),
    [
        pytest.param(FROM_EARLIEST, END_OF_READONLY, id="earliest"),
        pytest.param(NEW_ONLY, END_OF_READONLY, id="new_only"),
        pytest.param(FROM_EARLIEST | to_offset(9), END_OF_READONLY, id="earliest-9"),
        pytest.param(FROM_EARLIEST | TO_LATEST, STREAM_EMPTY, id="earliest-latest"),
    ],
)
async def test_an_empty_readonly_partition_ends_at_once(
    wire: Wire, stream_name: str, positions: dict[str, Any], end: End
) -> None:
    await wire.create(stream_name)
    await wire.set_readonly(stream_name)

    assert await read_out(wire, stream_name, **positions) == ([], end)


async def test_a_tail_ends_when_the_stream_is_deleted(wire: Wire, stream_name: str) -> None:
    await wire.create(stream_name)
    await wire.publish(stream_name, b"a")

    async with wire.subscribe(stream_name, **FROM_EARLIEST) as subscription:
        await subscription.take(1)
        await wire.delete(stream_name)
        assert await subscription.end() == DELETED


async def test_a_tail_ends_when_its_partition_is_paused(wire: Wire, stream_name: str) -> None:
    await wire.create(stream_name, partitions=2)
    await wire.publish(stream_name, b"a", partition=1)

    async with (
        wire.subscribe(stream_name, partition=0) as other,
        wire.subscribe(stream_name, partition=1, **FROM_EARLIEST) as subscription,
    ):
        await subscription.take(1)
        await wire.pause(stream_name, 1)
        assert await subscription.end() == CLOSED
        await wire.publish(stream_name, b"still there", partition=0)
        assert (await other.next()).value == b"still there"


@pytest.mark.parametrize(
    ("positions", "text"),
    [
        pytest.param(
            FROM_EARLIEST, f"Failed to create stream reader: {SEGMENT_CLOSED}", id="earliest"
        ),
        pytest.param(LATEST, f"Failed to create stream reader: {SEGMENT_CLOSED}", id="latest"),
        pytest.param(from_offset(0), f"Failed to create stream reader: {SEGMENT_CLOSED}", id="0"),
        pytest.param(
            FROM_EARLIEST | TO_LATEST,
            f"Failed to create stream reader: {SEGMENT_CLOSED}",
            id="earliest-latest",
        ),
        pytest.param(
            {"start_position": Start.TIMESTAMP, "start_timestamp": 1},
            "Failed to lookup offset for timestamp: "
            f"failed to find log segment for timestamp: {SEGMENT_CLOSED}",
            id="time",
        ),
    ],
)
async def test_a_paused_partition_that_holds_messages_cannot_be_read(
    wire: Wire, stream_name: str, positions: dict[str, Any], text: str
) -> None:
    await wire.create(stream_name)
    await wire.publish(stream_name, b"a")
    await wire.stored(stream_name, 1)
    await wire.pause(stream_name)

    assert await read_out(wire, stream_name, **positions) == ([], End(Status.INTERNAL, text))


@pytest.mark.parametrize(
    ("values", "positions"),
    [
        pytest.param([b"a"], NEW_ONLY, id="filled-new_only"),
        pytest.param([], NEW_ONLY, id="empty-new_only"),
        pytest.param([], FROM_EARLIEST, id="empty-earliest"),
    ],
)
async def test_a_tail_of_a_paused_partition_ends_after_its_handshake(
    wire: Wire, stream_name: str, values: list[bytes], positions: dict[str, Any]
) -> None:
    await wire.create(stream_name)
    await wire.publish(stream_name, *values)
    await wire.stored(stream_name, len(values))
    await wire.pause(stream_name)

    async with wire.subscribe(stream_name, **positions) as subscription:
        assert await subscription.end() == CLOSED
