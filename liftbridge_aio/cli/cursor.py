"""`liftbridge-aio cursor`: positions that the servers keep."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from .connection import DEFAULT_CONNECTION, AsJson, Connection, Partition
from .output import say, write_json, write_line
from .running import CLIENT, in_event_loop

app = App(name="cursor", help="Store and read positions that the servers keep.")

CursorId = Annotated[str, Parameter(help="Name of the cursor, for example of who reads.")]


@app.command(name="set")
@in_event_loop(*CLIENT)
async def set_cursor(
    cursor_id: CursorId,
    stream: Annotated[str, Parameter(help="Stream it belongs to.")],
    offset: Annotated[int, Parameter(help="Offset to store: the last one dealt with.")],
    /,
    *,
    partition: Partition = 0,
    as_json: AsJson = False,
    connection: Connection = DEFAULT_CONNECTION,
) -> None:
    """Store a position in a partition."""
    async with connection.client() as client:
        await client.set_cursor(cursor_id, stream, partition, offset)
    if as_json:
        _write(cursor_id, stream, partition, offset)


@app.command(name="get")
@in_event_loop(*CLIENT)
async def get_cursor(
    cursor_id: CursorId,
    stream: Annotated[str, Parameter(help="Stream it belongs to.")],
    /,
    *,
    partition: Partition = 0,
    as_json: AsJson = False,
    connection: Connection = DEFAULT_CONNECTION,
) -> None:
    """Write the stored offset; nothing (null in JSON) where there is none."""
    async with connection.client() as client:
        offset = await client.fetch_cursor(cursor_id, stream, partition)
    if as_json:
        _write(cursor_id, stream, partition, offset)
    elif offset is None:
        say(f"no cursor {cursor_id!r} for partition {partition} of {stream}")
    else:
        write_line(str(offset))


def _write(cursor_id: str, stream: str, partition: int, offset: int | None) -> None:
    write_json({"cursor_id": cursor_id, "stream": stream, "partition": partition, "offset": offset})
