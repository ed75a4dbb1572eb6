"""Read the internal streams of servers: ids of cursors, and members of consumer groups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from liftbridge_aio._client.client import Client
from liftbridge_aio.activity_events import ActivityEvent, JoinGroupEvent, LeaveGroupEvent
from liftbridge_aio.errors import CursorsUnavailable
from liftbridge_aio.model import ACTIVITY_STREAM, CURSORS_STREAM, StartAt, StopAt

GROUP_PREFIX: Final = "__group:"
"""Prefix of the ids of cursors that store positions of groups; the id of the group follows."""
BEGINNING_PREFIX: Final = "__group-began-at-0:"
"""The same for cursors that say that a group without a position begins at offset 0."""


class CursorName(NamedTuple):
    """The key of a cursor."""

    cursor_id: str
    stream: str
    partition: int


async def read_cursor_names(client: Client) -> list[CursorName]:
    """Read the names of all cursors that were ever stored, sorted.

    They are read from the stream in which servers store cursors, as there is no call for them.

    Raises:
        CursorsUnavailable: the servers store no cursors.
        LiftbridgeError: the stream cannot be read.
    """
    from liftbridge_aio._admin.cursors import VISIBILITY_CURSOR  # noqa: PLC0415 (see below)
    from liftbridge_aio.wire import proto  # noqa: PLC0415 (help must not wait for it)

    metadata = await client.fetch_metadata([CURSORS_STREAM])
    if CURSORS_STREAM not in metadata.streams:
        raise CursorsUnavailable("the servers store no cursors")
    names = set()
    for partition in metadata.streams[CURSORS_STREAM].partitions:
        async with client.subscribe(
            CURSORS_STREAM,
            partition=partition,
            start=StartAt.earliest(),
            stop=StopAt.latest(),
            unpause=True,
        ) as messages:
            async for message in messages:
                try:
                    cursor = proto.Cursor.parse(message.value)
                except Exception:  # noqa: BLE001, S112 (any client may publish any bytes there)
                    continue
                name = CursorName(cursor.cursor_id, cursor.stream, cursor.partition)
                if name.cursor_id == VISIBILITY_CURSOR:
                    continue
                if message.key == ",".join(map(str, name)).encode():
                    names.add(name)
    return sorted(names)


class GroupMembers:
    """The members of groups, from events in their order."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[str, tuple[str, ...]]] = {}

    def take(self, event: ActivityEvent) -> None:
        """Apply an event."""
        match event:
            case JoinGroupEvent():
                self._groups.setdefault(event.group, {})[event.consumer] = event.streams
            case LeaveGroupEvent():
                self._groups.setdefault(event.group, {}).pop(event.consumer, None)

    @property
    def groups(self) -> list[str]:
        """Every group that had a member, sorted."""
        return sorted(self._groups)

    def of(self, group: str) -> Mapping[str, tuple[str, ...]]:
        """Return the members of a group, with the streams of each."""
        return self._groups.get(group, {})


async def read_group_members(client: Client) -> GroupMembers | None:
    """Read the members of groups from the events in the activity stream.

    Returns:
        None if the servers have no activity stream.

    Raises:
        LiftbridgeError: the stream cannot be read.
    """
    metadata = await client.fetch_metadata([ACTIVITY_STREAM])
    if ACTIVITY_STREAM not in metadata.streams:
        return None
    members = GroupMembers()
    async with client.activity(start=StartAt.earliest(), stop=StopAt.latest()) as events:
        async for event in events:
            members.take(event)
    return members
