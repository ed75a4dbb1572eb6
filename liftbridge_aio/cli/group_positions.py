"""Positions of consumer groups: fetch them with their lag, resolve and store new ones."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from liftbridge_aio._client.client import Client
from liftbridge_aio._core.log_position import LogPosition, log_cursor, note_cursor
from liftbridge_aio.errors import LiftbridgeError, UsageError
from liftbridge_aio.model import GroupInfo, Metadata, StartAt, StartPosition
from liftbridge_aio.options import timer_seconds

from .internal_streams import BEGINNING_PREFIX, GROUP_PREFIX, read_group_members
from .partition_states import PartitionState, fetch_states

NOTHING_DONE: Final = -1
"""The position of a group that begins at offset 0, which is stored as a cursor of its own."""


@dataclass(frozen=True, slots=True)
class GroupPosition:
    """The position of a group in a partition."""

    stream: str
    partition: int
    position: int | None
    """Offset of the last processed message; None: none is stored."""
    high_watermark: int | None
    """Offset of the newest committed message, -1 if there is none; None: not known."""
    newest_offset: int | None
    """Offset of the newest stored message, which a lone server may hide after a restart."""
    state: str = ""
    """The state of the partition; members cannot read a paused one unless they resume it."""
    oldest_offset: int | None = None
    """Offset of the oldest message, that of the next one if there is none; None: not known."""

    @property
    def place(self) -> str:
        """The partition as `stream/partition`."""
        return f"{self.stream}/{self.partition}"

    @property
    def is_behind(self) -> bool:
        """True if there are offsets between the position and the high watermark."""
        done = NOTHING_DONE if self.position is None else self.position
        return self.high_watermark is not None and self.high_watermark > done

    @property
    def is_emptied(self) -> bool:
        """True if retention removed all messages of the partition."""
        if self.high_watermark is None or self.oldest_offset is None:
            return False
        return 0 <= self.high_watermark < self.oldest_offset

    @property
    def lag(self) -> int | None:
        """The number of offsets to read after the position, or of all if there is none.

        Below 0 if the stream was created again after the position was stored; None: not known.
        """
        if self.high_watermark is None or (self.is_behind and self.oldest_offset is None):
            return None
        done = NOTHING_DONE if self.position is None else self.position
        if self.newest_offset is not None and self.high_watermark < done <= self.newest_offset:
            return 0
        return self.high_watermark - max(done, (self.oldest_offset or 0) - 1)

    @property
    def removed(self) -> range:
        """The offsets after the position that were removed."""
        if self.position is None or self.oldest_offset is None:
            return range(0)
        return range(self.position + 1, self.oldest_offset)

    def as_json(self) -> dict[str, Any]:
        """Return every field as JSON has it."""
        fields = asdict(self) | {"lag": self.lag, "removed": None}
        del fields["oldest_offset"], fields["newest_offset"]  # `partitions list` shows them
        if self.removed:
            fields["removed"] = {"first": self.removed[0], "last": self.removed[-1]}
        return fields


def cursor_of(group: str) -> str:
    """Return the id of the cursors that store the positions of a group."""
    return f"{GROUP_PREFIX}{group}"


def beginning_of(group: str) -> str:
    """Return the id of the cursors that say that a group begins at offset 0."""
    return f"{BEGINNING_PREFIX}{group}"


async def locate(client: Client, group: str, stream: str, partition: int) -> LogPosition:
    """Fetch the position of a group in the log that a stream has now.

    Raises:
        LiftbridgeError: it cannot be read.
    """
    cursors = client._living.cursors  # noqa: SLF001 - users need no call for it
    timeout = timer_seconds(client.options.call_timeout)
    return await cursors.locate(cursor_of(group), stream, partition, timeout)


def _beginning_in(log: LogPosition, group: str) -> str:
    """Return the id of the cursor that says that a group begins a log at offset 0."""
    beginning = beginning_of(group)
    return beginning if log.former is None else log_cursor(beginning, log.created)


async def fetch_position(client: Client, group: str, stream: str, partition: int) -> int | None:
    """Fetch the position of a group in a partition, in the log that the stream has now.

    Returns:
        `NOTHING_DONE` if it begins at offset 0; None if nothing is stored.

    Raises:
        LiftbridgeError: it cannot be read.
    """
    log = await locate(client, group, stream, partition)
    if log.position is not None:
        return log.position
    note = await client.fetch_cursor(_beginning_in(log, group), stream, partition)
    return None if note is None else NOTHING_DONE


async def fetch_positions(
    client: Client, group: str, streams: Collection[str], metadata: Metadata
) -> tuple[list[GroupPosition], list[PartitionState]]:
    """Fetch the positions of a group in all partitions of some streams.

    Args:
        client: connected.
        group: the id of the group.
        streams: their names; those that do not exist are left out.
        metadata: of these streams.

    Returns:
        The positions, and the states of the partitions.

    Raises:
        LiftbridgeError: a position cannot be read.
    """
    from liftbridge_aio._runtime.bounded_gather import bounded_gather  # noqa: PLC0415 (anyio)

    known = [metadata.streams[name] for name in sorted(streams) if name in metadata.streams]
    states = await fetch_states(client, known)

    async def fetch(state: PartitionState) -> tuple[GroupPosition, PartitionState]:
        stream, partition = state.stream, state.info.id
        position = await fetch_position(client, group, stream, partition)
        ends = state.high_watermark, state.newest_offset
        found = GroupPosition(stream, partition, position, *ends, state.words())
        if not found.is_behind:
            return found, state
        try:
            oldest = await client.oldest_offset(stream, partition)
        except LiftbridgeError as error:
            state = replace(state, error=error)
            return replace(found, state=state.words()), state
        return replace(found, oldest_offset=oldest), state

    fetched = await bounded_gather(states, fetch)
    return [position for position, _ in fetched], [state for _, state in fetched]


async def find_position(client: Client, before: GroupPosition, start: StartAt) -> int:
    """Return the position of a group that continues at `start`; `NOTHING_DONE` for offset 0.

    If retention has emptied the partition, or there is no message after the start, it is the end.

    Args:
        client: connected.
        before: the present position of the group.
        start: the message to continue with.

    Raises:
        PartitionPaused: it is paused, and its messages must be read to find the position.
        LiftbridgeError: the partition cannot be read.
    """
    if start.position is StartPosition.OFFSET:
        return start.value - 1
    stream, partition, newest = before.stream, before.partition, before.newest_offset
    if newest is None:
        newest = (await client.fetch_partition_metadata(stream, partition)).newest_offset
    if start.position is StartPosition.NEW_ONLY or newest < 0:
        return newest
    oldest = before.oldest_offset
    if oldest is None:
        oldest = await client.oldest_offset(stream, partition)
    if oldest > newest:
        return newest
    match start.position:
        case StartPosition.EARLIEST:
            return oldest - 1
        case StartPosition.LATEST:
            return newest - 1
    async with client.read(stream, start=start, partition=partition) as messages:
        async for message in messages:
            return message.offset - 1
    return newest


@dataclass(frozen=True, slots=True)
class Move:
    """A position to store."""

    before: GroupPosition
    after: int

    @property
    def place(self) -> str:
        """The partition as `stream/partition`."""
        return self.before.place


async def refuse_if_in_use(client: Client, group: GroupInfo | None, *, force: bool) -> None:
    """Refuse to move a group that has members, as they would overwrite it.

    Raises:
        UsageError: it has members.
    """
    if group is None or force:
        return
    members = await read_group_members(client)
    names = ", ".join(sorted(members.of(group.id))) if members else ""
    raise UsageError(
        f"group {group.id!r} has members{f' ({names})' if names else ''}, which would overwrite "
        "the position: stop them first, or give --force"
    )


def refuse_impossible(group: str, moves: Sequence[Move], *, force: bool) -> None:
    """Refuse moves that cannot be stored or are beyond the log, before anything is stored.

    Raises:
        UsageError: there is such a move.
    """
    for move in moves:
        newest, position = move.before.newest_offset, move.before.position
        if move.after == NOTHING_DONE and position not in {None, NOTHING_DONE}:
            raise UsageError(
                f"group {group} cannot be moved before offset 0 of {move.place}: it has stored "
                f"position {position} there, which servers cannot remove; use another group, "
                "whose members start at earliest"
            )
        if not force and newest is not None and move.after > newest:
            end = "holds no message" if newest < 0 else f"ends at offset {newest}"
            raise UsageError(
                f"{move.place} {end}: group {group} cannot be moved to position {move.after}, to "
                f"continue with offset {move.after + 1}, unless --force is given"
            )


async def store(client: Client, group: str, moves: Sequence[Move]) -> None:
    """Store positions one after the other, and fetch each to verify it.

    Cancelling may leave some stored.

    Raises:
        LiftbridgeError: one could not be stored.
    """
    for move in moves:
        where = move.before.stream, move.before.partition
        log = await locate(client, group, *where)
        if move.after == NOTHING_DONE:  # used only if no position is stored
            await client.set_cursor(_beginning_in(log, group), *where, 0)
        else:
            if log.note_due:
                await client.set_cursor(note_cursor(log.cursor), *where, log.created)
            await client.set_cursor(log.cursor, *where, move.after)
        stored = await fetch_position(client, group, *where)
        if stored != move.after:
            raise LiftbridgeError(
                f"position {move.after} of {move.place} was stored, but is now {stored}"
            )
