"""The state of partitions as their leaders know it, also where a leader does not answer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from liftbridge_aio.client import Client
from liftbridge_aio.errors import LiftbridgeError, StreamNotFound
from liftbridge_aio.model import PartitionInfo, StreamInfo

from .failures import failure_line
from .output import say

AT_ONCE: Final = 32
"""Questions that servers are asked at a time."""


@dataclass(frozen=True, slots=True)
class PartitionState:
    """What is known of one partition."""

    stream: str
    info: PartitionInfo
    """What its leader says; where that says nothing, what the metadata says."""
    error: LiftbridgeError | None = None
    """Why the leader says nothing."""

    @property
    def high_watermark(self) -> int | None:
        """Offset of the newest committed message, -1 where there is none; None: not known."""
        return None if self.error else self.info.high_watermark

    @property
    def newest_offset(self) -> int | None:
        """Offset of the newest stored message, -1 where there is none; None: not known."""
        return None if self.error else self.info.newest_offset

    def words(self) -> str:
        """Say how it is."""
        words = [
            word
            for word, holds in (
                ("leader does not answer", self.error is not None),
                ("paused", self.info.paused),
                ("read-only", self.info.readonly),
            )
            if holds
        ]
        return ", ".join(words) or "open"

    def as_json(self) -> dict[str, Any]:
        """Give every field."""
        fields = {
            "stream": self.stream,
            **asdict(self.info),
            "high_watermark": self.high_watermark,
            "newest_offset": self.newest_offset,
        }
        return fields if self.error is None else fields | {"error": str(self.error)}


async def fetch_streams(client: Client, names: Sequence[str] = ()) -> list[StreamInfo]:
    """Ask for streams.

    Args:
        client: whom to ask.
        names: which, in this order; none: all, by name.

    Raises:
        StreamNotFound: there is no stream of one of these names.
        LiftbridgeError: no server answered.
    """
    wanted = list(dict.fromkeys(names))
    metadata = await client.fetch_metadata(wanted or None)
    for name in wanted:
        if name not in metadata.streams:
            raise StreamNotFound("stream not found", stream=name)
    return [metadata.streams[name] for name in wanted or sorted(metadata.streams)]


async def fetch_states(client: Client, streams: Iterable[StreamInfo]) -> list[PartitionState]:
    """Ask the leaders of all partitions of these streams, many at a time."""
    turn = asyncio.Semaphore(AT_ONCE)

    async def ask(stream: str, known: PartitionInfo) -> PartitionState:
        async with turn:
            try:
                info = await client.fetch_partition_metadata(stream, known.id)
            except LiftbridgeError as error:
                return PartitionState(stream, known, error)
            return PartitionState(stream, info)

    return await asyncio.gather(
        *(
            ask(stream.name, stream.partitions[number])
            for stream in streams
            for number in sorted(stream.partitions)
        )
    )


def say_what_failed(states: Sequence[PartitionState]) -> int:
    """Tell in one line which leaders did not answer, if any; return the exit code."""
    failed = [state.error for state in states if state.error is not None]
    if failed:
        say(
            f"error: {len(failed)} of {len(states)} partitions cannot be asked for their state, "
            f"the first: {failure_line(failed[0])}"
        )
    return 1 if failed else 0
