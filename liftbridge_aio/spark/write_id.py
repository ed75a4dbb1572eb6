"""Who wrote a row: an identity in its headers, by which repeats of it are known. Pure.

Spark promises that a batch which is run again has the same query and batch id, and a task of it the
same number. So the row with the same number in the same task of the same batch is the same row,
unless the plan deals rows out in another way each time, as `repartition(n)` does after a shuffle
whose order is not fixed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple, Self

WRITE_ID_HEADER: Final = "spark-write-id"
"""`query/batch/task/row`: equal in a row and its repeats, so it is what readers drop repeats by."""
ATTEMPT_HEADER: Final = "spark-attempt"
"""Names the attempt that published a row: another one for each attempt of a task."""


class WriteId(NamedTuple):
    """What a row keeps however often it is published."""

    query: str
    """Id of the streaming query, kept in its checkpoint; of a batch write, an id of its own."""
    batch: int
    """Number of the micro-batch; 0 in a batch write."""
    task: int
    """Number of the task within the batch, which is that of Spark's partition."""
    row: int
    """Number of the row within the task, from 0."""

    @classmethod
    def decode(cls, header: bytes) -> Self:
        """Read what `TaskAttempt.headers` wrote.

        Raises:
            ValueError: it is something else.
        """
        query, batch, task, row = header.decode().rsplit("/", 3)
        numbers = int(batch), int(task), int(row)
        if min(numbers) < 0:
            text = f"{header!r} has a negative number"
            raise ValueError(text)
        return cls(query, *numbers)


@dataclass(frozen=True, slots=True)
class TaskAttempt:
    """One try of one task to write its rows."""

    query: str
    batch: int
    task: int
    number: int
    """How many tries of the task Spark began before, in this run of the batch."""
    id: str
    """Differs between any two attempts, those of an earlier run of the same batch included."""

    def __str__(self) -> str:
        return f"task {self.task} of batch {self.batch} of query {self.query}"

    def headers(self, first: int, count: int) -> list[dict[str, bytes]]:
        """Make the headers of `count` rows of which the first has the number `first`."""
        prefix = f"{self.query}/{self.batch}/{self.task}/".encode()
        attempt = f"{self.number}-{self.id}".encode()
        return [
            {WRITE_ID_HEADER: b"%s%d" % (prefix, row), ATTEMPT_HEADER: attempt}
            for row in range(first, first + count)
        ]
