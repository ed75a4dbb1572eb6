"""`liftbridge-aio cursor`: positions that the servers keep."""

from __future__ import annotations

import asyncio
from typing import Annotated

from cyclopts import App, Parameter

from liftbridge_aio.arguments import INT64_MAX, check_whole_number
from liftbridge_aio.client import Client
from liftbridge_aio.errors import PartitionNotFound

from .connection import DEFAULT_CONNECTION, AsJson, Connection, Partition, StreamName
from .internal_streams import CursorName, read_cursor_names
from .output import say, shown, write_json, write_line, write_table
from .partition_states import AT_ONCE, fetch_streams
from .running import CLIENT, TABLES, in_event_loop

app = App(name=("cursor", "cursors"), help="Store, read and list positions that the servers keep.")

CursorId = Annotated[str, Parameter(help="Name of the cursor, for example of who reads.")]


@app.command(name="set")
@in_event_loop(*CLIENT)
async def set_cursor(
    cursor_id: CursorId,
    stream: StreamName,
    offset: Annotated[int, Parameter(help="Offset to store: the last one dealt with.")],
    /,
    *,
    partition: Partition = 0,
    force: Annotated[
        bool, Parameter(negative="", help="Store it even if there is no such partition.")
    ] = False,
    as_json: AsJson = False,
    connection: Connection = DEFAULT_CONNECTION,
) -> None:
    """Store a position in a partition.

    The partition must exist, unless --force is given: servers keep positions for any name. Servers
    of 1.9.0 may forget a move backwards when they restart: they find the highest position then.

    For example:

        liftbridge-aio cursor set reports orders 41 --partition 2
    """
    check_whole_number(offset, "an offset", 0, INT64_MAX)
    async with connection.client() as client:
        if not force:
            await _check(client, stream, partition)
        await client.set_cursor(cursor_id, stream, partition, offset)
    if as_json:
        write_json(_as_json(CursorName(cursor_id, stream, partition), offset))
    else:
        say(f"cursor {cursor_id} is at offset {offset} of {stream}[{partition}]")


@app.command(name="get")
@in_event_loop(*CLIENT)
async def get_cursor(
    cursor_id: CursorId,
    stream: StreamName,
    /,
    *,
    partition: Partition = 0,
    as_json: AsJson = False,
    connection: Connection = DEFAULT_CONNECTION,
) -> None:
    """Write the stored offset; nothing (null in JSON) where there is none.

    For example:

        liftbridge-aio cursor get reports orders --partition 2
    """
    async with connection.client() as client:
        offset = await client.fetch_cursor(cursor_id, stream, partition)
    if as_json:
        write_json(_as_json(CursorName(cursor_id, stream, partition), offset))
    elif offset is None:
        say(f"no cursor {cursor_id!r} for partition {partition} of {stream}")
    else:
        write_line(str(offset))


@app.command(name="list")
@in_event_loop(*CLIENT, *TABLES)
async def list_cursors(
    *streams: Annotated[str, Parameter(help="Only those of these streams.")],
    cursor_id: Annotated[str | None, Parameter(help="Only those of this name.")] = None,
    as_json: AsJson = False,
    connection: Connection = DEFAULT_CONNECTION,
) -> None:
    """List the stored cursors, those of consumer groups among them (`__group:` and the group's id).

    No call of the servers lists them: their names are read from the stream in which servers keep
    them, and each is then asked for. Cursors of streams that were deleted are there still.

    For example:

        liftbridge-aio cursor list
        liftbridge-aio cursor list orders --cursor-id reports --json
    """
    async with connection.client() as client:
        names = [
            name
            for name in await read_cursor_names(client)
            if (not streams or name.stream in streams) and cursor_id in {None, name.cursor_id}
        ]
        offsets = await _fetch(client, names)
    found = list(zip(names, offsets, strict=True))
    if as_json:
        write_json([_as_json(name, offset) for name, offset in found])
    else:
        rows = [(*name, shown(offset)) for name, offset in found]
        write_table("Cursors", ("Cursor", "Stream", "Partition", "Offset"), rows)


async def _check(client: Client, stream: str, partition: int) -> None:
    [info] = await fetch_streams(client, [stream])
    if partition not in info.partitions:
        text = f"the stream has {len(info.partitions)} partitions"
        raise PartitionNotFound(text, stream=stream, partition=partition)


async def _fetch(client: Client, names: list[CursorName]) -> list[int | None]:
    turn = asyncio.Semaphore(AT_ONCE)

    async def ask(name: CursorName) -> int | None:
        async with turn:
            return await client.fetch_cursor(*name)

    return await asyncio.gather(*map(ask, names))


def _as_json(name: CursorName, offset: int | None) -> dict[str, object]:
    return {**name._asdict(), "offset": offset}
