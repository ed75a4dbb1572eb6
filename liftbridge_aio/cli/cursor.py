"""`liftbridge-aio cursor`: positions that are stored in servers."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from liftbridge_aio._client.client import Client
from liftbridge_aio._core.arguments import INT64_MAX, check_whole_number
from liftbridge_aio.errors import PartitionNotFound

from .connection import (
    DEFAULT_CONNECTION,
    AsJson,
    ConnectionFlags,
    Integer,
    Partition,
    StreamName,
)
from .internal_streams import CursorName, read_cursor_names
from .output import say, shown, write_json, write_line, write_table
from .partition_states import fetch_streams
from .running import CLIENT, TABLES, in_event_loop

app = App(
    name=("cursor", "cursors"),
    help="Store, read and list cursors: positions that are stored in servers.",
)

CursorId = Annotated[str, Parameter(help="Id of the cursor, for example the name of the reader.")]


@app.command(name="set")
@in_event_loop(*CLIENT)
async def set_cursor(
    cursor_id: CursorId,
    stream: StreamName,
    offset: Annotated[
        Integer, Parameter(help="Offset to store: that of the last processed message.")
    ],
    /,
    *,
    partition: Partition = 0,
    force: Annotated[
        bool, Parameter(negative="", help="Store it even if the partition does not exist.")
    ] = False,
    as_json: AsJson = False,
    connection: ConnectionFlags = DEFAULT_CONNECTION,
) -> None:
    """Store a cursor for a partition.

    The partition must exist, unless --force is given: servers store cursors for any name. After a
    restart, servers of version 1.9.0 return the highest position, so a move backwards may be lost.

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
    connection: ConnectionFlags = DEFAULT_CONNECTION,
) -> None:
    """Write the stored offset; nothing (null in JSON) if there is none in this partition.

    For example:

        liftbridge-aio cursor get reports orders --partition 2
    """
    async with connection.client() as client:
        offset = await client.fetch_cursor(cursor_id, stream, partition)
        if offset is None:
            await _check(client, stream, partition)
    if as_json:
        write_json(_as_json(CursorName(cursor_id, stream, partition), offset))
    elif offset is None:
        say(f"no cursor {cursor_id!r} for partition {partition} of {stream}")
    else:
        write_line(str(offset))


@app.command(name="list", usage="Usage: liftbridge-aio cursor list [OPTIONS] [STREAMS...]")
@in_event_loop(*CLIENT, *TABLES)
async def list_cursors(
    *streams: Annotated[str, Parameter(help="Only cursors in these streams.")],
    cursor_id: Annotated[str | None, Parameter(help="Only cursors with this id.")] = None,
    as_json: AsJson = False,
    connection: ConnectionFlags = DEFAULT_CONNECTION,
) -> None:
    """List the stored cursors, also those of consumer groups (`__group:` and the id of the group).

    Servers have no call for this: the ids are read from the stream in which servers store cursors,
    and each cursor is then fetched. Cursors in deleted streams are still listed.

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
        there = (await client.fetch_metadata()).streams
    found = list(zip(names, offsets, strict=True))
    if as_json:
        write_json([_as_json(name, offset) for name, offset in found])
    else:
        rows = [
            (
                name.cursor_id,
                name.stream if name.stream in there else f"{name.stream} (deleted)",
                name.partition,
                shown(offset),
            )
            for name, offset in found
        ]
        write_table("Cursors", ("Cursor", "Stream", "Partition", "Offset"), rows)


async def _check(client: Client, stream: str, partition: int) -> None:
    [info] = await fetch_streams(client, [stream])
    if partition not in info.partitions:
        raise PartitionNotFound(
            f"the stream has {len(info.partitions)} partitions", stream=stream, partition=partition
        )


async def _fetch(client: Client, names: list[CursorName]) -> list[int | None]:
    from liftbridge_aio._runtime.bounded_gather import bounded_gather  # noqa: PLC0415 (anyio)

    return await bounded_gather(names, lambda name: client.fetch_cursor(*name))


def _as_json(name: CursorName, offset: int | None) -> dict[str, object]:
    return {**name._asdict(), "offset": offset}
