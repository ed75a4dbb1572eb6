"""The write id: a header that identifies a row, so that its repeats are known. Pure.

Spark guarantees that a batch that is run again has the same query and batch id, and each of its
tasks the same number. So the row with the same number in the same task of the same batch is the
same row, unless the plan distributes rows differently each time, as `repartition(n)` does after a
shuffle whose order is not fixed.

The header has 45 bytes, numbers in big-endian order:

| Bytes | What |
|---|---|
| 0 | 1, the version of this format |
| 1 to 16 | id of the query |
| 17 to 24 | number of the batch |
| 25 to 28 | number of the task |
| 29 to 36 | number of the row |
| 37 to 44 | id of the attempt |

Rows of an attempt differ only in the number of the row, so the rest is encoded once. The bytes up
to and including that number are equal in a row and its repeats.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import repeat
from struct import Struct
from typing import Final, NamedTuple, Self
from uuid import UUID

WRITE_ID_HEADER: Final = "spark-write-id"
_VERSION: Final = 1
_START: Final = Struct(">B16sQI")
_ROW: Final = Struct(f">{_START.size}sQ8s")
_WHOLE: Final = Struct(">B16sQIQ8s")
ATTEMPT_BYTES: Final = 8


class WriteId(NamedTuple):
    """The decoded header. Repeats of a row differ in `attempt` only."""

    query: bytes
    """Id of the streaming query, from its checkpoint; each batch write has a new one."""
    batch: int
    """Number of the micro-batch; 0 in a batch write."""
    task: int
    """Number of the task within the batch: Spark's partition."""
    row: int
    """Number of the row within the task, from 0."""
    attempt: bytes
    """Id of the attempt that published the row."""

    @classmethod
    def decode(cls, header: bytes) -> Self:
        """Decode a header that `TaskAttempt.write_ids` encoded.

        Raises:
            ValueError: it is something else.
        """
        if len(header) != _WHOLE.size or header[0] != _VERSION:
            raise ValueError(f"{header!r} is not a write id")
        return cls(*_WHOLE.unpack(header)[1:])


@dataclass(frozen=True, slots=True)
class TaskAttempt:
    """One attempt of a task to write its rows."""

    query: UUID
    batch: int
    task: int
    number: int
    """Number of earlier attempts since Spark last started the stage of the task."""
    id: bytes
    """Unique among all attempts, those of an earlier run of the batch included."""

    def __str__(self) -> str:
        return f"task {self.task} of batch {self.batch} of query {self.query}"

    def write_ids(self, rows: Iterable[int]) -> Iterator[bytes]:
        """Encode the headers of the rows with these numbers."""
        start = _START.pack(_VERSION, self.query.bytes, self.batch, self.task)
        return map(_ROW.pack, repeat(start), rows, repeat(self.id))
