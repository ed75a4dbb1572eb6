"""`liftbridge-aio groups`: show members and positions of consumer groups, and move positions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from cyclopts import App, Parameter

from liftbridge_aio._client.client import Client
from liftbridge_aio.errors import CursorsUnavailable, NotFound, PartitionNotFound
from liftbridge_aio.model import Metadata

from .arguments import BadArgument, parse_duration, parse_start
from .connection import (
    DEFAULT_CONNECTION,
    AsJson,
    ConnectionFlags,
    Integer,
    Integers,
    Interval,
    Partition,
    StreamName,
    Watch,
    Yes,
    not_empty,
)
from .group_overview import deleted, find_groups, position_shown, write_group
from .group_positions import (
    GroupPosition,
    Move,
    fetch_position,
    fetch_positions,
    find_position,
    refuse_if_in_use,
    refuse_impossible,
    store,
)
from .output import say, write_json, write_table
from .partition_states import say_what_failed
from .running import ACTIVITY, CLIENT, TABLES, confirmed, in_event_loop, watched

app = App(name="groups", help="List and show consumer groups, and move their positions.")


GroupId = Annotated[str, Parameter(help="Id of the group.", validator=not_empty)]
Streams = Annotated[
    tuple[str, ...],
    Parameter(
        name="--stream",
        negative="",
        show_default=False,
        help="A stream of the group; may be repeated. Default: all its known streams.",
    ),
]
Force = Annotated[
    bool,
    Parameter(
        negative="", help="Store even if the group has members, or beyond the newest message."
    ),
]
DryRun = Annotated[bool, Parameter(negative="", help="Store nothing, only show the changes.")]


@app.command(name="list")
@in_event_loop(*CLIENT, *ACTIVITY, *TABLES)
async def list_groups(
    *, as_json: AsJson = False, connection: ConnectionFlags = DEFAULT_CONNECTION
) -> None:
    """List the groups that have members or stored positions.

    Servers have no call for this: groups are found in the streams in which servers store cursors
    and, if enabled, activity. Members are known only with the activity stream.

    For example:

        liftbridge-aio groups list
        liftbridge-aio groups list --json
    """
    async with connection.client() as client:
        known = await find_groups(client)
        if known.members is None and known.cursors is None:
            raise CursorsUnavailable(
                "the servers store neither cursors nor activity, in which groups could be found"
            )
        metadata = await client.fetch_metadata(groups=known.ids)
    if known.members is None:
        say("the servers have no activity stream, so members are not known")
    overviews = [known.overview(group, metadata) for group in known.ids]
    if as_json:
        write_json([overview.as_json() for overview in overviews])
        return
    columns = ("Group", "Has members", "Coordinator", "Epoch", "Members", "Streams")
    rows = [overview.row() for overview in overviews]
    write_table("Consumer groups", columns, rows, spare=("Epoch", "Coordinator"))


@app.command(usage="Usage: liftbridge-aio groups show [OPTIONS] GROUPS...")
@in_event_loop(*CLIENT, *ACTIVITY, *TABLES)
async def show(
    *groups: Annotated[str, Parameter(help="Ids of groups.")],
    streams: Streams = (),
    watch: Watch = False,
    interval: Interval = "2s",
    as_json: AsJson = False,
    connection: ConnectionFlags = DEFAULT_CONNECTION,
) -> int:
    """Show groups: coordinator, epoch, members, and for each partition position and lag.

    The position is the offset of the last processed message. "before 0" (-1 in JSON): the group
    begins at offset 0. "none": the start position of its members decides. The lag counts messages
    after the position, or all if there is none, up to the newest committed one; below 0, the stream
    was created again. Messages that were removed before the group read them are reported. A paused
    partition is read after it is resumed: see `streams resume`. Servers forget a group when its
    last member leaves, but not its positions. Members are known only if the servers have an
    activity stream.

    For example:

        liftbridge-aio groups show billing
        liftbridge-aio groups show billing audit --stream orders --json
        liftbridge-aio groups show billing --watch --interval 5s
    """
    if not groups:
        raise BadArgument("name at least one group; `groups list` shows them")
    ids = list(dict.fromkeys(groups))
    every = parse_duration(interval) if watch else None
    async with connection.client() as client:
        return await watched(lambda: _show(client, ids, streams, as_json=as_json), every)


async def _show(
    client: Client, groups: Sequence[str], streams: Sequence[str], *, as_json: bool
) -> int:
    """Fetch and show groups; return the exit code."""
    found = []
    states = []
    known = await find_groups(client)
    metadata = await client.fetch_metadata(groups=groups)
    for group in groups:
        _check_streams(streams, metadata)
        overview = known.overview(group, metadata)
        positions, asked = await fetch_positions(
            client, group, set(streams or overview.streams), metadata
        )
        stored = any(position.position is not None for position in positions)
        if not overview.exists and not stored and not overview.streams:
            raise NotFound(f"no server knows a group {group!r}, and it has stored no position")
        found.append((overview, positions))
        states += asked
    if as_json:
        write_json(
            [
                overview.as_json() | {"positions": [position.as_json() for position in positions]}
                for overview, positions in found
            ]
        )
    else:
        for overview, positions in found:
            write_group(overview, positions)
    return say_what_failed(states)


@app.command(name="set")
@in_event_loop(*CLIENT, *ACTIVITY)
async def set_position(
    group: GroupId,
    stream: StreamName,
    offset: Annotated[Integer, Parameter(help="Offset of the last processed message.")],
    /,
    *,
    partition: Partition = 0,
    force: Force = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
    connection: ConnectionFlags = DEFAULT_CONNECTION,
) -> int:
    """Store the position of a group in one partition; its members continue after it.

    Refused while the group has members, which would overwrite it, and beyond the newest message,
    unless --force is given. Asks first if stdin is a terminal. After a restart, servers of version
    1.9.0 return the highest position, so a move backwards may be lost.

    For example:

        liftbridge-aio groups set billing orders 41 --partition 2
    """
    async with connection.client() as client:
        metadata = await client.fetch_metadata(groups=[group])
        _check_streams([stream], metadata)
        await refuse_if_in_use(client, metadata.groups.get(group), force=force)
        state = await client.fetch_partition_metadata(stream, partition)
        position = await fetch_position(client, group, stream, partition)
        ends = state.high_watermark, state.newest_offset
        before = GroupPosition(stream, partition, position, *ends)
        moves = [Move(before, offset)]
        refuse_impossible(group, moves, force=force)
        if not dry_run:
            if moves and not yes and not await _agreed(client, group, moves, force=force):
                return 1
            await store(client, group, moves)
    _report(group, moves, dry_run=dry_run, as_json=as_json)
    return 0


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
            help="Message to continue with: earliest, latest, new, an offset, a time "
            "(2026-11-21T09:00Z), or -5m for ago.",
        ),
    ],
    streams: Streams = (),
    partition: Annotated[
        Integers,
        Parameter(
            negative="",
            show_default=False,
            help="Only this partition of each stream; may be repeated.",
        ),
    ] = (),
    force: Force = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
    connection: ConnectionFlags = DEFAULT_CONNECTION,
) -> int:
    """Move a group to other positions in its streams.

    Refused while the group has members, which would overwrite them, unless --force is given. Asks
    first if stdin is a terminal. A stored position cannot be moved before offset 0, as it is that
    of the last processed message: use another group, whose members start at earliest. A group
    without a stored position gets a note that it begins at offset 0, which overrides the start
    position of its members (Go clients ignore the note). In a partition that retention has emptied,
    the group continues with the next message. After a restart, servers of version 1.9.0 return the
    highest position, so a move backwards may be lost.

    For example:

        liftbridge-aio groups reset billing --to -1h --dry-run
        liftbridge-aio groups reset billing --to new --stream orders
    """
    from liftbridge_aio._runtime.bounded_gather import bounded_gather  # noqa: PLC0415 (anyio)

    start = parse_start(to)
    async with connection.client() as client:
        metadata = await client.fetch_metadata(groups=[group])
        _check_streams(streams, metadata)
        await refuse_if_in_use(client, metadata.groups.get(group), force=force)
        mine = set(streams) or (await find_groups(client)).streams_of(group)
        positions, _ = await fetch_positions(client, group, mine, metadata)
        _check_partitions(partition, positions)
        chosen = [one for one in positions if not partition or one.partition in partition]
        if not chosen:
            gone = deleted(mine, metadata)
            why = f"its streams were deleted ({', '.join(gone)})" if gone else "none is known"
            raise NotFound(
                f"group {group!r} has no partition, {why}; name its streams with --stream"
            )
        targets = await bounded_gather(chosen, lambda one: find_position(client, one, start))
        moves = [
            Move(one, target)
            for one, target in zip(chosen, targets, strict=True)
            if target != one.position
        ]
        refuse_impossible(group, moves, force=force)
        if not dry_run:
            if moves and not yes and not await _agreed(client, group, moves, force=force):
                return 1
            await store(client, group, moves)
    _report(group, moves, dry_run=dry_run, as_json=as_json)
    return 0


async def _agreed(client: Client, group: str, moves: Sequence[Move], *, force: bool) -> bool:
    """Ask for agreement to moves on the terminal, while which a member may have joined."""
    listed = ", ".join(
        f"{move.place} from {position_shown(move.before.position)} to {position_shown(move.after)}"
        for move in moves
    )
    if not await confirmed(f"move group {group}: {listed}?"):
        say("nothing is moved")
        return False
    metadata = await client.fetch_metadata(groups=[group])
    await refuse_if_in_use(client, metadata.groups.get(group), force=force)
    return True


def _report(group: str, moves: Sequence[Move], *, dry_run: bool, as_json: bool) -> None:
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
    verb = "would be" if dry_run else "is"
    for move in moves:
        before, after = position_shown(move.before.position), position_shown(move.after)
        emptied = ", as retention has emptied it" if move.before.is_emptied else ""
        say(f"position of {group} in {move.place} {verb} {after}, was {before}{emptied}")
    if not moves:
        say(f"group {group} is at these positions already")


def _check_streams(streams: Sequence[str], metadata: Metadata) -> None:
    for name in streams:
        if name not in metadata.streams:
            raise NotFound("stream not found", stream=name)


def _check_partitions(partitions: Sequence[int], positions: Sequence[GroupPosition]) -> None:
    for number in partitions:
        if positions and all(one.partition != number for one in positions):
            names = ", ".join(dict.fromkeys(one.stream for one in positions))
            raise PartitionNotFound(
                f"no stream of the group has this partition: {names}", partition=number
            )
