"""Fetch the state of partitions from their leaders, also if some do not answer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from liftbridge_aio._client.client import Client
from liftbridge_aio.errors import LiftbridgeError, StreamNotFound
from liftbridge_aio.model import PartitionInfo, StreamInfo

from .output import failure_line, say


@dataclass(frozen=True, slots=True)
class PartitionState:
    """The state of a partition."""

    stream: str
    info: PartitionInfo
    """The partition, from its leader; if that does not answer, from the metadata."""
    error: LiftbridgeError | None = None
    """The reason why the leader did not answer."""

    @property
    def high_watermark(self) -> int | None:
        """Offset of the newest committed message, -1 if there is none; None: not known."""
        return None if self.error else self.info.high_watermark

    @property
    def newest_offset(self) -> int | None:
        """Offset of the newest stored message, -1 if there is none; None: not known."""
        return None if self.error else self.info.newest_offset

    def words(self) -> str:
        """Return the state as text."""
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
        """Return every field as JSON has it."""
        fields = {
            "stream": self.stream,
            **asdict(self.info),
            "high_watermark": self.high_watermark,
            "newest_offset": self.newest_offset,
        }
        return fields if self.error is None else fields | {"error": str(self.error)}


async def fetch_streams(client: Client, names: Sequence[str] = ()) -> list[StreamInfo]:
    """Fetch streams.

    Args:
        client: connected.
        names: of the streams, in this order; none: all, sorted.

    Raises:
        StreamNotFound: one of them does not exist.
        LiftbridgeError: no server answered.
    """
    wanted = list(dict.fromkeys(names))
    metadata = await client.fetch_metadata(wanted or None)
    for name in wanted:
        if name not in metadata.streams:
            raise StreamNotFound("stream not found", stream=name)
    return [metadata.streams[name] for name in wanted or sorted(metadata.streams)]


async def fetch_states(client: Client, streams: Iterable[StreamInfo]) -> list[PartitionState]:
    """Fetch the states of all partitions of streams from their leaders, concurrently."""
    from liftbridge_aio._runtime.bounded_gather import bounded_gather  # noqa: PLC0415 (anyio)

    async def fetch(partition: tuple[str, PartitionInfo]) -> PartitionState:
        stream, known = partition
        try:
            info = await client.fetch_partition_metadata(stream, known.id)
        except LiftbridgeError as error:
            return PartitionState(stream, known, error)
        return PartitionState(stream, info)

    partitions = [
        (stream.name, info) for stream in streams for _, info in sorted(stream.partitions.items())
    ]
    return await bounded_gather(partitions, fetch)


def say_what_failed(states: Sequence[PartitionState]) -> int:
    """Report on one line how many leaders did not answer, if any; return the exit code."""
    failed = [state.error for state in states if state.error is not None]
    if failed:
        say(
            f"error: {len(failed)} of {len(states)} partitions have a leader that did not answer, "
            f"the first: {failure_line(failed[0])}"
        )
    return 1 if failed else 0
