"""Split ranges of offsets into tasks of Spark. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from .offsets import OffsetRange


def split(
    ranges: Sequence[OffsetRange],
    *,
    min_partitions: int | None = None,
    max_records: int | None = None,
) -> list[OffsetRange]:
    """Split ranges into pieces of nearly equal size, one for each task.

    Args:
        ranges: what to read; empty ones are left out.
        min_partitions: the least number of tasks, as far as there are enough offsets.
        max_records: most offsets of a task.

    Returns:
        The pieces in the order of the ranges, which together are the ranges.
    """
    filled = [one for one in ranges if one.count > 0]
    pieces = [1 if max_records is None else -(-one.count // max_records) for one in filled]
    _add_pieces(filled, pieces, (min_partitions or 0) - sum(pieces))
    return [
        piece for one, number in zip(filled, pieces, strict=True) for piece in _cut(one, number)
    ]


def _add_pieces(ranges: Sequence[OffsetRange], pieces: list[int], more: int) -> None:
    """Split the ranges with the largest pieces further, into `more` pieces in all."""
    # Sizes are negative as a heap returns the least; the index orders equal ones.
    heap = [(-one.count / pieces[index], index) for index, one in enumerate(ranges)]
    heapq.heapify(heap)
    while more > 0 and heap:
        _, index = heap[0]
        if pieces[index] >= ranges[index].count:
            heapq.heappop(heap)  # already single offsets
            continue
        pieces[index] += 1
        more -= 1
        heapq.heapreplace(heap, (-ranges[index].count / pieces[index], index))


def _cut(whole: OffsetRange, number: int) -> list[OffsetRange]:
    bounds = [whole.start + whole.count * step // number for step in range(number + 1)]
    return [
        OffsetRange(whole.stream, whole.partition, bounds[step], bounds[step + 1])
        for step in range(number)
    ]
