"""Where consumer groups stand: their positions, how far behind, and where they can be put."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass
from typing import Any, Final

from liftbridge_aio.client import Client
from liftbridge_aio.errors import RequestTimeout
from liftbridge_aio.model import Metadata, StartAt, StartPosition, StopAt
from liftbridge_aio.options import timer_seconds

from .internal_streams import GROUP_PREFIX, CursorName
from .partition_states import AT_ONCE, PartitionState, fetch_states

NOTHING_DONE: Final = -1
"""The position of a group that is to begin at offset 0; no server stores it."""


@dataclass(frozen=True, slots=True)
class GroupPosition:
    """Where a group stands in a partition."""

    stream: str
    partition: int
    position: int | None
    """Offset of the last message that the group is done with; None: it has stored none."""
    high_watermark: int | None
    """Offset of the newest committed message, -1 where there is none; None: not known."""

    @property
    def lag(self) -> int | None:
        """Offsets from the position to the high watermark.

        Below 0 where the stream is not the one in which the position was stored; None: not known.
        """
        if self.position is None or self.high_watermark is None:
            return None
        return self.high_watermark - self.position

    def as_json(self) -> dict[str, Any]:
        """Give every field."""
        return asdict(self) | {"lag": self.lag}


def cursor_of(group: str) -> str:
    """Return the id of the cursors in which a group keeps its positions."""
    return f"{GROUP_PREFIX}{group}"


def groups_with_cursors(names: Iterable[CursorName]) -> list[str]:
    """Return the groups that have ever stored a position."""
    ids = {name.cursor_id for name in names}
    return sorted(
        cursor_id.removeprefix(GROUP_PREFIX)
        for cursor_id in ids
        if cursor_id.startswith(GROUP_PREFIX)
    )


async def fetch_positions(
    client: Client, group: str, streams: Collection[str], metadata: Metadata
) -> tuple[list[GroupPosition], list[PartitionState]]:
    """Ask where a group stands in all partitions of some streams.

    Args:
        client: whom to ask.
        group: the id of the group.
        streams: their names; those that are gone are left out.
        metadata: in which these streams are looked up.

    Returns:
        The positions, and the states of the partitions.

    Raises:
        LiftbridgeError: a position cannot be read.
    """
    known = [metadata.streams[name] for name in sorted(streams) if name in metadata.streams]
    states = await fetch_states(client, known)
    turn = asyncio.Semaphore(AT_ONCE)

    async def ask(state: PartitionState) -> GroupPosition:
        async with turn:
            position = await client.fetch_cursor(cursor_of(group), state.stream, state.info.id)
        return GroupPosition(state.stream, state.info.id, position, state.high_watermark)

    return await asyncio.gather(*map(ask, states)), states


async def find_position(client: Client, stream: str, partition: int, start: StartAt) -> int:
    """Find the position of a group that is to go on at `start`; `NOTHING_DONE` for offset 0.

    Raises:
        PartitionPaused: it is, and its messages have to be looked at.
        RequestTimeout: no message came in time, as where retention has emptied the log.
        LiftbridgeError: the partition cannot be read.
    """
    if start.position is StartPosition.OFFSET:
        return start.value - 1
    info = await client.fetch_partition_metadata(stream, partition)
    newest = info.high_watermark
    if start.position is StartPosition.NEW_ONLY:
        return newest
    limit = timer_seconds(client.options.call_timeout)
    try:
        async with (
            asyncio.timeout(limit) as patience,
            client.subscribe(stream, partition, start, StopAt.latest()) as messages,
        ):
            async for message in messages:
                return message.offset - 1
    except TimeoutError:
        if not patience.expired():
            raise
        # A log that retention has emptied never ends, and never begins.
        text = f"no message came within {limit:g} s"
        raise RequestTimeout(text, stream=stream, partition=partition) from None
    return newest
