"""Find consumer groups in the internal streams of servers, and show them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from liftbridge_aio._client.client import Client
from liftbridge_aio.errors import CursorsUnavailable
from liftbridge_aio.model import Metadata

from .group_positions import NOTHING_DONE, GroupPosition, beginning_of, cursor_of
from .internal_streams import (
    BEGINNING_PREFIX,
    GROUP_PREFIX,
    CursorName,
    GroupMembers,
    read_cursor_names,
    read_group_members,
)
from .output import say, shown, write_table


@dataclass(frozen=True, slots=True)
class KnownGroups:
    """The consumer groups that the servers' internal streams name."""

    cursors: Sequence[CursorName] | None
    """All cursors, in which groups store their positions. None: the servers keep no cursors."""
    members: GroupMembers | None
    """The members of groups; None if the servers keep no activity stream."""

    @property
    def ids(self) -> list[str]:
        """Every group that joined with a member or stored a position, sorted."""
        stored = {
            cursor.cursor_id.removeprefix(prefix)
            for cursor in self.cursors or ()
            for prefix in (GROUP_PREFIX, BEGINNING_PREFIX)
            if cursor.cursor_id.startswith(prefix)
        }
        return sorted(stored.union(self.members.groups if self.members else ()))

    def streams_of(self, group: str) -> set[str]:
        """Return the streams that a group has positions in or that its members asked for."""
        ids = {cursor_of(group), beginning_of(group)}
        stored = {cursor.stream for cursor in self.cursors or () if cursor.cursor_id in ids}
        members = self.members.of(group).values() if self.members else ()
        return stored.union(*members)

    def overview(self, group: str, metadata: Metadata) -> GroupOverview:
        """Return the overview of a group from these streams and the metadata."""
        info = metadata.groups.get(group)
        broker = None if info is None else metadata.brokers.get(info.coordinator)
        streams = self.streams_of(group)
        members: Mapping[str, tuple[str, ...]] | None = {}
        if info is not None:
            members = None if self.members is None else self.members.of(group)
        return GroupOverview(
            id=group,
            exists=info is not None,
            coordinator=None if info is None else info.coordinator,
            coordinator_address=None if broker is None else broker.address,
            epoch=None if info is None else info.epoch,
            members=members,
            streams=sorted(streams),
            deleted_streams=deleted(streams, metadata),
        )


async def find_groups(client: Client) -> KnownGroups:
    """Read the internal streams that name groups. Cancelling abandons the reading.

    Raises:
        LiftbridgeError: one of them could not be read.
    """
    try:
        cursors = await read_cursor_names(client)
    except CursorsUnavailable:
        cursors = None
    return KnownGroups(cursors, await read_group_members(client))


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOverview:
    """A consumer group without its positions."""

    id: str
    exists: bool
    """True if it has members: servers forget a group when its last member leaves."""
    coordinator: str | None
    coordinator_address: str | None
    epoch: int | None
    members: Mapping[str, tuple[str, ...]] | None
    """The streams of each member. None: the servers keep no activity stream to find them in."""
    streams: list[str]
    deleted_streams: list[str]
    """Those of `streams` that do not exist any more."""

    def as_json(self) -> dict[str, Any]:
        """Return every field as JSON has it."""
        members = None
        if self.members is not None:
            members = [
                {"id": member, "streams": list(streams)}
                for member, streams in sorted(self.members.items())
            ]
        return asdict(self) | {"members": members}

    def row(self) -> tuple[object, ...]:
        """Return its cells in the table of all groups."""
        return (
            self.id,
            "yes" if self.exists else "no",
            shown(self.coordinator) if self.exists else "",
            shown(self.epoch) if self.exists else "",
            "?" if self.members is None else len(self.members),
            ", ".join(
                f"{name} (deleted)" if name in self.deleted_streams else name
                for name in self.streams
            ),
        )

    @property
    def title(self) -> str:
        """The heading of the table of its positions."""
        title = f"Group {self.id}: "
        if not self.exists:
            return f"{title}no members"
        address = self.coordinator_address or "address not known"
        title += f"coordinator {self.coordinator} ({address}), epoch {self.epoch}"
        if self.members is None:
            return f"{title}, members not known"
        return f"{title}, members {', '.join(sorted(self.members)) or 'none'}"


def deleted(streams: Collection[str], metadata: Metadata) -> list[str]:
    """Return the streams that do not exist, sorted."""
    return sorted(name for name in streams if name not in metadata.streams)


def write_group(overview: GroupOverview, positions: Sequence[GroupPosition]) -> None:
    """Write the positions of a group to stdout as a table, and explain them on stderr.

    Raises:
        BrokenPipeError: nobody reads any more.
    """
    rows: list[tuple[object, ...]] = [
        (
            position.stream,
            position.partition,
            position_shown(position.position),
            shown(position.high_watermark),
            shown(position.lag),
            position.state,
        )
        for position in positions
    ]
    rows += [(name, "", "", "", "", "deleted") for name in overview.deleted_streams]
    columns = ("Stream", "Partition", "Position", "High watermark", "Lag", "State")
    write_table(overview.title, columns, rows, spare=("High watermark",))
    _explain(overview, positions)


def _explain(overview: GroupOverview, positions: Sequence[GroupPosition]) -> None:
    """Explain the figures of a group on stderr."""
    group, gone = overview.id, overview.deleted_streams
    for position in positions:
        removed = position.removed
        if removed:
            say(
                f"{position.place}: offsets {removed[0]} to {removed[-1]} were removed before group"
                f" {group} had read them"
            )
        if position.lag is not None and position.lag < 0:
            say(
                f"{position.place}: the position of group {group} is beyond the end of the log,"
                " which was created again or truncated; move it with `groups reset`"
            )
    without = [position.place for position in positions if position.position is None]
    if without:
        say(
            f"group {group} has stored no position in {', '.join(without)}: the start position of"
            " its members decides where they begin, and the lag counts all stored messages"
        )
    if gone and not positions:
        say(f"group {group} has nothing to read: its streams were deleted ({', '.join(gone)})")
    elif not positions:
        say(
            f"group {group} has stored no position, and its streams are not known: name them with"
            " --stream"
        )


def position_shown(position: int | None) -> str:
    """Return the position of a group as tables show it."""
    if position is None:
        return "none"
    return "before 0" if position == NOTHING_DONE else str(position)
