"""Choose the stream and partition of each row. Pure.

A row goes to the partition that it names, else to that of its key, so that rows with equal keys
keep their order, else to the partitions in turn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from zlib import crc32

from liftbridge_aio.spark.errors import InvalidRow

OutgoingRow = tuple[str, bytes, bytes | None, Mapping[str, bytes] | None, int]
"""Stream, value, key, headers and partition, in the order of the client's arguments."""


@dataclass(slots=True)
class Rows:
    """Rows of a task as a list for each part of a message; None if no row has that part."""

    first: int
    """Number of the first row within its task."""
    values: list[bytes | None]
    keys: list[bytes | None] | None
    headers: list[dict[str, bytes] | None] | None
    partitions: list[int | None] | None
    streams: list[str | None] | None

    def __len__(self) -> int:
        return len(self.values)


class RowPlacement:
    """Places the rows of a task.

    Args:
        stream: the stream of all rows; None: each row names its own.
        turn: where rows without partition and key begin to take turns. Pass each task another
            number, or the first partitions get more rows than others.
    """

    def __init__(self, *, stream: str | None, turn: int) -> None:
        self._stream = stream
        self._turn = turn

    def streams(self, rows: Rows) -> set[str]:
        """Return the streams that rows go to.

        Raises:
            InvalidRow: a row names none.
        """
        if self._stream is not None:
            return {self._stream}
        streams = set(rows.streams or ())
        if not rows.streams or not all(streams):
            row = next((i for i, stream in enumerate(rows.streams or [None]) if not stream), 0)
            error = InvalidRow(f"row {rows.first + row} of the task names no stream")
            error.hint = "fill the column stream, or set the option stream"
            raise error
        return {stream for stream in streams if stream}

    def place(self, rows: Rows, counts: Mapping[str, int]) -> list[OutgoingRow]:
        """Return the rows as messages.

        Args:
            rows: checked by `streams` before.
            counts: number of partitions of each stream.

        Raises:
            InvalidRow: a row has no value, or names a partition that does not exist.
        """
        streams = [self._stream] * len(rows) if self._stream is not None else rows.streams or []
        keys = rows.keys or [None] * len(rows)
        partitions = self._partitions(rows, streams, keys, counts)
        if None in rows.values:
            row = rows.values.index(None)
            error = InvalidRow(
                f"row {rows.first + row} of the task has no value", partition=partitions[row]
            )
            error.hint = "filter such rows out, for example with where('value is not null')"
            raise error.at(streams[row])
        headers = rows.headers if rows.headers is not None else repeat(None, len(rows))
        # An empty key is no key, as on the wire.
        named = [key or None for key in keys] if rows.keys else keys
        return list(zip(streams, rows.values, named, headers, partitions, strict=True))  # type: ignore[arg-type]  # no stream or value is None, as checked above

    def _partitions(
        self,
        rows: Rows,
        streams: Sequence[str | None],
        keys: Sequence[bytes | None],
        counts: Mapping[str, int],
    ) -> list[int]:
        chosen = self._chosen(rows, streams, keys, counts)
        if rows.partitions is None:
            return chosen
        for row, (partition, stream) in enumerate(zip(rows.partitions, streams, strict=True)):
            if partition is None:
                continue
            count = counts[stream or ""]
            if not 0 <= partition < count:
                error = InvalidRow(
                    f"row {rows.first + row} of the task names partition {partition} of a stream"
                    f" that has {count}",
                    stream=stream,
                    partition=partition,
                )
                error.hint = "correct the column partition, or drop it so that the key decides"
                raise error
            chosen[row] = partition
        return chosen

    def _chosen(
        self,
        rows: Rows,
        streams: Sequence[str | None],
        keys: Sequence[bytes | None],
        counts: Mapping[str, int],
    ) -> list[int]:
        if self._stream is not None and counts[self._stream] == 1:
            return [0] * len(rows)
        turn = self._turn
        chosen = []
        for stream, key in zip(streams, keys, strict=True):
            count = counts[stream or ""]
            if key:
                chosen.append(crc32(key) % count)
            else:
                chosen.append(turn % count)
                turn += 1
        self._turn = turn
        return chosen
