"""Putting consumer groups elsewhere: what is refused, and storing the positions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from liftbridge_aio.client import Client
from liftbridge_aio.errors import LiftbridgeError, UsageError
from liftbridge_aio.model import GroupInfo

from .group_positions import NOTHING_DONE, GroupPosition, cursor_of
from .internal_streams import read_group_members


@dataclass(frozen=True, slots=True)
class Move:
    """A position that is to be stored."""

    before: GroupPosition
    after: int

    @property
    def place(self) -> str:
        """Name the partition."""
        return f"{self.before.stream}/{self.before.partition}"


async def refuse_if_in_use(client: Client, group: GroupInfo | None, *, force: bool) -> None:
    """Refuse to move a group that has members, as they would store over it.

    Raises:
        UsageError: it has.
    """
    if group is None or force:
        return
    members = await read_group_members(client)
    names = ", ".join(sorted(members.of(group.id))) if members else ""
    message = (
        f"group {group.id!r} has members{f' ({names})' if names else ''}, who would go on where "
        "they are and store over it: stop them first, or give --force"
    )
    raise UsageError(message)


def refuse_impossible(moves: Sequence[Move], *, force: bool) -> None:
    """Refuse moves that cannot be stored or lead out of the log, before anything is stored.

    Raises:
        UsageError: one is of that kind.
    """
    for move in moves:
        newest = move.before.high_watermark
        if move.after == NOTHING_DONE:
            message = (
                f"group cannot be put before offset 0 of {move.place}: a position is the last "
                "message done; take another group, whose members start at earliest"
            )
            raise UsageError(message)
        if not force and newest is not None and move.after > newest:
            message = f"the newest message of {move.place} has offset {newest}, not {move.after}"
            raise UsageError(message)


async def store(client: Client, group: str, moves: Sequence[Move]) -> None:
    """Store positions one after the other, and look whether each is there.

    Cancelling may leave some stored.

    Raises:
        LiftbridgeError: one could not be stored.
    """
    for move in moves:
        where = (cursor_of(group), move.before.stream, move.before.partition)
        await client.set_cursor(*where, move.after)
        stored = await client.fetch_cursor(*where)
        if stored != move.after:
            message = f"position {move.after} of {move.place} was stored, but is {stored} now"
            raise LiftbridgeError(message)
