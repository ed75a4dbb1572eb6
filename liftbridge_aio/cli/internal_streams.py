"""What the servers' own streams tell: cursors by name, and who is in which consumer group."""

from __future__ import annotations

from typing import Final, NamedTuple

from liftbridge_aio.client import Client
from liftbridge_aio.errors import CursorsUnavailable
from liftbridge_aio.model import ACTIVITY_STREAM, CURSORS_STREAM, StartAt, StopAt

from .group_members import GroupMembers

GROUP_PREFIX: Final = "__group:"
"""What the ids of cursors begin with in which groups keep their positions; the group's id
follows."""


class CursorName(NamedTuple):
    """Which position a cursor is."""

    cursor_id: str
    stream: str
    partition: int


async def read_cursor_names(client: Client) -> list[CursorName]:
    """Read the names of all cursors that were ever stored, sorted.

    No call of the servers tells them, but the stream does in which they keep cursors.

    Raises:
        CursorsUnavailable: the servers keep no cursors.
        LiftbridgeError: the stream cannot be read.
    """
    from liftbridge_aio.wire import proto  # noqa: PLC0415 (help must not wait for it)

    metadata = await client.fetch_metadata([CURSORS_STREAM])
    if CURSORS_STREAM not in metadata.streams:
        raise CursorsUnavailable("the servers keep no cursors")
    names = set()
    for partition in metadata.streams[CURSORS_STREAM].partitions:
        async with client.subscribe(
            CURSORS_STREAM, partition, StartAt.earliest(), StopAt.latest(), resume=True
        ) as messages:
            async for message in messages:
                try:
                    cursor = proto.Cursor.parse(message.value)
                except Exception:  # noqa: BLE001, S112 (anybody may publish anything there)
                    continue
                name = CursorName(cursor.cursor_id, cursor.stream, cursor.partition)
                if message.key == ",".join(map(str, name)).encode():
                    names.add(name)
    return sorted(names)


async def read_group_members(client: Client) -> GroupMembers | None:
    """Read who joined and left which group, as far back as the activity stream goes.

    Returns:
        None where the servers keep no activity stream.

    Raises:
        LiftbridgeError: the stream cannot be read.
    """
    metadata = await client.fetch_metadata([ACTIVITY_STREAM])
    if ACTIVITY_STREAM not in metadata.streams:
        return None
    members = GroupMembers()
    async with client.activity(StartAt.earliest(), StopAt.latest()) as events:
        async for event in events:
            members.take(event)
    return members
