"""Cursors: positions that the server keeps."""

from __future__ import annotations

import zlib

from grpclib.const import Status

from liftbridge_aio.wire import proto, rpc
from support.raw import End, Wire

CURSORS = "__cursors"


async def store(wire: Wire, cursor_id: str, stream: str, partition: int, offset: int) -> None:
    request = proto.SetCursorRequest(
        stream=stream, partition=partition, cursor_id=cursor_id, offset=offset
    )
    assert await wire.call(rpc.SET_CURSOR, request) == proto.SetCursorResponse()


async def fetch(wire: Wire, cursor_id: str, stream: str, partition: int = 0) -> int:
    request = proto.FetchCursorRequest(stream=stream, partition=partition, cursor_id=cursor_id)
    return (await wire.call(rpc.FETCH_CURSOR, request)).offset


def home_of(cursor_id: str, stream: str, partition: int) -> tuple[bytes, int]:
    """The key of a cursor and the partition of three that keeps it (W14)."""
    key = f"{cursor_id},{stream},{partition}".encode()
    return key, zlib.crc32(key) % 3


async def test_a_cursor_lies_in_the_partition_of_its_hashed_name(
    wire: Wire, stream_name: str
) -> None:
    names = [(f"cursor-{number}", stream_name, number) for number in range(8)]
    for offset, name in enumerate(names):
        await store(wire, *name, offset)

    homes = {partition for _, partition in (home_of(*name) for name in names)}
    assert len(homes) > 1
    kept = {
        (message.key, message.partition): message.value
        for partition in homes
        for message in await wire.read(CURSORS, partition)
    }
    for offset, name in enumerate(names):
        cursor_id, stream, partition = name
        assert proto.Cursor.parse(kept[home_of(*name)]) == proto.Cursor(
            stream=stream, partition=partition, cursor_id=cursor_id, offset=offset
        )


async def test_each_change_of_a_cursor_is_a_message(wire: Wire, stream_name: str) -> None:
    for offset in (3, 4, 4):
        await store(wire, "cursor", stream_name, 0, offset)

    key, home = home_of("cursor", stream_name, 0)
    changes = [
        proto.Cursor.parse(message.value).offset
        for message in await wire.read(CURSORS, home)
        if message.key == key
    ]
    assert changes == [3, 4, 4]


async def test_cursors_survive_the_deletion_of_their_stream(wire: Wire, stream_name: str) -> None:
    await wire.create(stream_name)
    await store(wire, "cursor", stream_name, 0, 9)
    await wire.delete(stream_name)

    assert await fetch(wire, "cursor", stream_name) == 9


async def test_the_stream_of_cursors_is_listed(wire: Wire) -> None:
    found = await wire.stream(CURSORS)
    assert sorted(found.partitions) == [0, 1, 2]


async def test_the_stream_of_cursors_is_not_protected(wire: Wire, stream_name: str) -> None:
    _, home = home_of("cursor", stream_name, 0)
    request = proto.SetCursorRequest(stream=stream_name, cursor_id="cursor", offset=1)

    await wire.set_readonly(CURSORS)
    try:
        end = await wire.refusal(rpc.SET_CURSOR, request)
    finally:
        await wire.set_readonly(CURSORS, readonly=False)
    text = f"rpc error: code = FailedPrecondition desc = readonly partition: {home}"
    assert end == End(Status.INTERNAL, text)


async def test_paused_cursors_wake_up_when_one_is_stored(wire: Wire, stream_name: str) -> None:
    await store(wire, "cursor", stream_name, 0, 1)
    await wire.pause(CURSORS, resume_all=True)

    await store(wire, "cursor", stream_name, 0, 2)
    assert await fetch(wire, "cursor", stream_name) == 2


async def test_a_cursor_is_at_its_highest_once_its_partition_is_resumed(
    wire: Wire, stream_name: str
) -> None:
    """The broker forgets what was stored last and takes the maximum of what it finds."""
    await store(wire, "cursor", stream_name, 0, 9)
    await store(wire, "cursor", stream_name, 0, 3)
    assert await fetch(wire, "cursor", stream_name) == 3

    await wire.pause(CURSORS, resume_all=True)
    await store(wire, "another", stream_name, 0, 1)
    assert await fetch(wire, "cursor", stream_name) == 9
