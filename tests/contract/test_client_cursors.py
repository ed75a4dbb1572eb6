"""Cursors through the client."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from liftbridge_aio import Client, InvalidRequest
from liftbridge_aio.wire import proto, rpc
from support.marks import ON_ONE_PATH
from support.raw import BOUND, Wire

pytestmark = ON_ONE_PATH  # it is about calls, which go over the same connections on both


async def test_a_cursor_never_set_is_none(client: Client, stream_name: str) -> None:
    assert await client.fetch_cursor("id", stream_name, 0) is None


@pytest.mark.parametrize("offset", [0, 1, 2**62, 2**63 - 1])
async def test_a_cursor_comes_back(client: Client, stream_name: str, offset: int) -> None:
    await client.set_cursor("id", stream_name, 0, offset)
    assert await client.fetch_cursor("id", stream_name, 0) == offset


async def test_a_cursor_is_overwritten_back_and_forth(client: Client, stream_name: str) -> None:
    for offset in (5, 9, 3):
        await client.set_cursor("id", stream_name, 0, offset)
        assert await client.fetch_cursor("id", stream_name, 0) == offset


async def test_cursors_are_told_apart_by_id_stream_and_partition(
    client: Client, stream_name: str
) -> None:
    names = [
        (cursor_id, stream, partition)
        for cursor_id in ("a", "b", "a,b")
        for stream in (stream_name, f"{stream_name}-other")
        for partition in range(3)
    ]
    for offset, name in enumerate(names):
        await client.set_cursor(*name, offset)
    assert [await client.fetch_cursor(*name) for name in names] == list(range(len(names)))


async def test_a_cursor_is_the_same_for_other_clients(
    client: Client, wire: Wire, stream_name: str
) -> None:
    await client.set_cursor("id", stream_name, 1, 11)
    request = proto.FetchCursorRequest(stream=stream_name, partition=1, cursor_id="id")
    assert (await wire.call(rpc.FETCH_CURSOR, request)).offset == 11


async def test_of_many_at_once_the_newest_stays(client: Client, stream_name: str) -> None:
    async with asyncio.timeout(BOUND):
        await asyncio.gather(
            *(client.set_cursor("id", stream_name, 0, offset) for offset in range(50))
        )
    assert await client.fetch_cursor("id", stream_name, 0) == 49


async def test_positions_that_are_overtaken_are_not_written(
    client: Client, stream_name: str
) -> None:
    async def written() -> int:
        partitions = (await client.fetch_metadata(["__cursors"])).streams["__cursors"].partitions
        infos = [await client.fetch_partition_metadata("__cursors", n) for n in partitions]
        return sum(info.newest_offset + 1 for info in infos)

    before = await written()
    await asyncio.gather(*(client.set_cursor("id", stream_name, 0, offset) for offset in range(50)))
    assert 1 <= await written() - before <= 2


async def test_a_cancelled_cursor_holds_up_no_other(client: Client, stream_name: str) -> None:
    tasks = [
        asyncio.create_task(client.set_cursor("id", stream_name, 0, offset)) for offset in range(10)
    ]
    await asyncio.sleep(0)
    for task in tasks[:9]:
        task.cancel()
    async with asyncio.timeout(BOUND):
        await asyncio.gather(*tasks, return_exceptions=True)
    assert tasks[9].exception() is None
    assert await client.fetch_cursor("id", stream_name, 0) == 9


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"cursor_id": ""}, id="id"),
        pytest.param({"stream": ""}, id="stream"),
        pytest.param({"partition": -1}, id="partition"),
        pytest.param({"offset": -1}, id="negative"),
        pytest.param({"offset": 2**63}, id="large"),
    ],
)
async def test_a_cursor_that_makes_no_sense_is_refused(
    client: Client, stream_name: str, changes: dict[str, Any]
) -> None:
    arguments: dict[str, Any] = {"cursor_id": "id", "stream": stream_name, "partition": 0}
    arguments |= {"offset": 1} | changes
    with pytest.raises(InvalidRequest):
        await client.set_cursor(**arguments)
    if "offset" not in changes:
        del arguments["offset"]
        with pytest.raises(InvalidRequest):
            await client.fetch_cursor(**arguments)
