"""`liftbridge-aio groups`: who is in consumer groups, how far they are, and moving them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from cyclopts import App, Parameter

from liftbridge_aio.client import Client
from liftbridge_aio.errors import CursorsUnavailable, NotFound, PartitionNotFound
from liftbridge_aio.model import Metadata

from .arguments import BadArgument, parse_start
from .connection import DEFAULT_CONNECTION, AsJson, Connection, Partition, StreamName
from .group_members import GroupMembers
from .group_moves import Move, refuse_if_in_use, refuse_impossible, store
from .group_positions import (
    NOTHING_DONE,
    GroupPosition,
    cursor_of,
    fetch_positions,
    find_position,
    groups_with_cursors,
)
from .internal_streams import CursorName, read_cursor_names, read_group_members
from .output import say, shown, write_json, write_table
from .partition_states import say_what_failed
from .running import ACTIVITY, CLIENT, TABLES, in_event_loop

app = App(name="groups", help="List and show consumer groups, and move their positions.")


def _not_empty(_: object, group: str) -> None:
    if not group:
        text = "the id of a group must not be empty"
        raise ValueError(text)


GroupId = Annotated[str, Parameter(help="Id of the group.", validator=_not_empty)]
Streams = Annotated[
    tuple[str, ...],
    Parameter(
        name="--stream",
        negative="",
        show_default=False,
        help="A stream of the group; may be repeated. Left out: all that are known to be its own.",
    ),
]
Force = Annotated[
    bool, Parameter(negative="", help="Do it although the group has members, or beyond the log.")
]
DryRun = Annotated[bool, Parameter(negative="", help="Store nothing, only show what would be.")]


@dataclass(frozen=True, slots=True)
class _Sources:
    """What the internal streams tell of groups; None where the servers do not keep one."""

    cursors: Sequence[CursorName] | None
    members: GroupMembers | None

    @property
    def groups(self) -> list[str]:
        ids = set(groups_with_cursors(self.cursors or ()))
        return sorted(ids.union(self.members.groups if self.members else ()))

    def streams_of(self, group: str) -> set[str]:
        cursors = self.cursors or ()
        named = {name.stream for name in cursors if name.cursor_id == cursor_of(group)}
        members = self.members.of(group).values() if self.members else ()
        return named.union(*members)

    def members_of(self, group: str) -> list[dict[str, Any]] | None:
        if self.members is None:
            return None
        members = self.members.of(group).items()
        return [{"id": member, "streams": list(streams)} for member, streams in sorted(members)]


async def _look(client: Client) -> _Sources:
    try:
        cursors = await read_cursor_names(client)
    except CursorsUnavailable:
        cursors = None
    return _Sources(cursors, await read_group_members(client))


@app.command(name="list")
@in_event_loop(*CLIENT, *ACTIVITY, *TABLES)
async def list_groups(
    *, as_json: AsJson = False, connection: Connection = DEFAULT_CONNECTION
) -> None:
    """List the groups that have members, and those that have stored positions.

    No call of the servers tells them: they are found in the streams in which servers keep cursors
    and, where that is switched on, activity. Members are known from the latter.

    For example:

        liftbridge-aio groups list
        liftbridge-aio groups list --json
    """
    async with connection.client() as client:
        sources = await _look(client)
        ids = sources.groups
        if sources.members is None and sources.cursors is None:
            message = (
                "the servers keep neither cursors nor activity, from which groups could be known"
            )
            raise CursorsUnavailable(message)
        metadata = await client.fetch_metadata(groups=ids)
    if sources.members is None:
        say("the servers keep no activity stream, so members are not known")
    overviews = [_overview(group, metadata, sources) for group in ids]
    if as_json:
        write_json(overviews)
        return
    rows = [
        (
            overview["id"],
            "yes" if overview["exists"] else "no",
            shown(overview["coordinator"]) if overview["exists"] else "",
            shown(overview["epoch"]) if overview["exists"] else "",
            "?" if overview["members"] is None else len(overview["members"]),
            ", ".join(overview["streams"]),
        )
        for overview in overviews
    ]
    columns = ("Group", "Has members", "Coordinator", "Epoch", "Members", "Streams")
    write_table("Consumer groups", columns, rows)


@app.command
@in_event_loop(*CLIENT, *ACTIVITY, *TABLES)
async def show(
    *groups: Annotated[str, Parameter(help="Ids of groups.")],
    streams: Streams = (),
    as_json: AsJson = False,
    connection: Connection = DEFAULT_CONNECTION,
) -> int:
    """Show groups: coordinator, epoch, members, and for each partition position and lag.

    A position is the offset of the last message that the group is done with. The lag counts
    offsets up to the newest committed message; below 0, the stream was created anew. Servers
    forget a group when its last member leaves, but not its positions. Members are known where the
    servers keep an activity stream.

    For example:

        liftbridge-aio groups show billing
        liftbridge-aio groups show billing audit --stream orders --json
    """
    if not groups:
        message = "name at least one group; `groups list` finds them"
        raise BadArgument(message)
    ids = list(dict.fromkeys(groups))
    shown_groups = []
    states = []
    async with connection.client() as client:
        sources = await _look(client)
        metadata = await client.fetch_metadata(groups=ids)
        for group in ids:
            _check_streams(streams, metadata)
            mine = set(streams) or sources.streams_of(group)
            positions, asked = await fetch_positions(client, group, mine, metadata)
            stored = any(position.position is not None for position in positions)
            if group not in metadata.groups and not stored and not sources.streams_of(group):
                message = f"no server knows a group {group!r}, and it has stored no position"
                raise NotFound(message)
            shown_groups.append((_overview(group, metadata, sources), positions))
            states += asked
    if as_json:
        write_json(
            [
                overview | {"positions": [position.as_json() for position in positions]}
                for overview, positions in shown_groups
            ]
        )
    else:
        for overview, positions in shown_groups:
            _write_group(overview, positions)
    return say_what_failed(states)


@app.command(name="set")
@in_event_loop(*CLIENT, *ACTIVITY)
async def set_position(
    group: GroupId,
    stream: StreamName,
    offset: Annotated[int, Parameter(help="Offset of the last message that counts as done.")],
    /,
    *,
    partition: Partition = 0,
    force: Force = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
    connection: Connection = DEFAULT_CONNECTION,
) -> None:
    """Store the position of a group in one partition; its members go on behind it.

    Refused while the group has members, who would store over it, and beyond the newest message,
    unless --force is given. Servers of 1.9.0 may forget a move backwards when they restart: they
    find the highest position then.

    For example:

        liftbridge-aio groups set billing orders 41 --partition 2
    """
    async with connection.client() as client:
        metadata = await client.fetch_metadata(groups=[group])
        _check_streams([stream], metadata)
        await refuse_if_in_use(client, metadata.groups.get(group), force=force)
        state = await client.fetch_partition_metadata(stream, partition)
        position = await client.fetch_cursor(cursor_of(group), stream, partition)
        before = GroupPosition(stream, partition, position, state.high_watermark)
        moves = [Move(before, offset)]
        refuse_impossible(moves, force=force)
        if not dry_run:
            await store(client, group, moves)
    _tell(group, moves, dry_run=dry_run, as_json=as_json)


@app.command
@in_event_loop(*CLIENT, *ACTIVITY)
async def reset(
    group: GroupId,
    /,
    *,
    to: Annotated[
        str,
        Parameter(
            allow_leading_hyphen=True,
            help="Message to go on with: earliest, latest, new, an offset, a time "
            "(2026-11-21T09:00Z), or -5m for ago.",
        ),
    ],
    streams: Streams = (),
    partition: Annotated[
        tuple[int, ...],
        Parameter(
            negative="", show_default=False, help="Only this partition of each; may be repeated."
        ),
    ] = (),
    force: Force = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
    connection: Connection = DEFAULT_CONNECTION,
) -> None:
    """Have a group go on elsewhere in its streams.

    Refused while the group has members, who would store over it, unless --force is given. It
    cannot be put before offset 0, as a position is the last message done: for that, take another
    group, whose members start at earliest. Servers of 1.9.0 may forget a move backwards when they
    restart: they find the highest position then.

    For example:

        liftbridge-aio groups reset billing --to -1h --dry-run
        liftbridge-aio groups reset billing --to new --stream orders
    """
    start = parse_start(to)
    async with connection.client() as client:
        metadata = await client.fetch_metadata(groups=[group])
        _check_streams(streams, metadata)
        await refuse_if_in_use(client, metadata.groups.get(group), force=force)
        mine = set(streams) or (await _look(client)).streams_of(group)
        positions, _ = await fetch_positions(client, group, mine, metadata)
        _check_partitions(partition, positions)
        chosen = [one for one in positions if not partition or one.partition in partition]
        if not chosen:
            message = f"no partition is known of group {group!r}; name its streams with --stream"
            raise NotFound(message)
        targets = await asyncio.gather(
            *(find_position(client, one.stream, one.partition, start) for one in chosen)
        )
        moves = [
            Move(one, target)
            for one, target in zip(chosen, targets, strict=True)
            if target != (NOTHING_DONE if one.position is None else one.position)
        ]
        refuse_impossible(moves, force=force)
        if not dry_run:
            await store(client, group, moves)
    _tell(group, moves, dry_run=dry_run, as_json=as_json)


def _tell(group: str, moves: Sequence[Move], *, dry_run: bool, as_json: bool) -> None:
    if as_json:
        write_json(
            [
                {
                    "group": group,
                    "stream": move.before.stream,
                    "partition": move.before.partition,
                    "before": move.before.position,
                    "after": move.after,
                    "stored": not dry_run,
                }
                for move in moves
            ]
        )
        return
    would = "would be" if dry_run else "is"
    for move in moves:
        before = "none" if move.before.position is None else move.before.position
        say(f"position of {group} in {move.place} {would} {move.after}, was {before}")
    if not moves:
        say(f"group {group} is there already")


def _check_streams(streams: Sequence[str], metadata: Metadata) -> None:
    for name in streams:
        if name not in metadata.streams:
            message = "stream not found"
            raise NotFound(message, stream=name)


def _check_partitions(partitions: Sequence[int], positions: Sequence[GroupPosition]) -> None:
    for number in partitions:
        if positions and all(one.partition != number for one in positions):
            names = ", ".join(dict.fromkeys(one.stream for one in positions))
            message = f"no stream of the group has this partition: {names}"
            raise PartitionNotFound(message, partition=number)


def _overview(group: str, metadata: Metadata, sources: _Sources) -> dict[str, Any]:
    info = metadata.groups.get(group)
    broker = None if info is None else metadata.brokers.get(info.coordinator)
    return {
        "id": group,
        "exists": info is not None,
        "coordinator": None if info is None else info.coordinator,
        "coordinator_address": None if broker is None else broker.address,
        "epoch": None if info is None else info.epoch,
        "members": [] if info is None else sources.members_of(group),
        "streams": sorted(sources.streams_of(group)),
    }


def _write_group(overview: dict[str, Any], positions: Sequence[GroupPosition]) -> None:
    title = f"Group {overview['id']}: "
    if overview["exists"]:
        address = overview["coordinator_address"] or "address not known"
        title += f"coordinator {overview['coordinator']} ({address}), epoch {overview['epoch']}"
        members = overview["members"]
        if members is None:
            title += ", members not known"
        else:
            title += f", members {', '.join(member['id'] for member in members) or 'none'}"
    else:
        title += "no members"
    rows = [
        (
            position.stream,
            position.partition,
            "none" if position.position is None else position.position,
            shown(position.high_watermark),
            shown(position.lag),
        )
        for position in positions
    ]
    write_table(title, ("Stream", "Partition", "Position", "High watermark", "Lag"), rows)
