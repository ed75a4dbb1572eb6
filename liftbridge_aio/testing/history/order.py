"""Finds the elements of a sequence that are out of order."""

from __future__ import annotations

import operator
from bisect import bisect_left
from collections.abc import Sequence
from itertools import islice


def displaced(ranks: Sequence[int]) -> list[int]:
    """Find a smallest set of places whose removal leaves the sequence increasing.

    It is the complement of a longest increasing subsequence, so one late message counts once,
    however many messages overtook it. There may be several smallest sets; this is one of them.
    Takes O(n log n) time, and O(n) if the sequence is in order.

    Args:
        ranks: distinct numbers.

    Returns:
        Places in `ranks`, in ascending order.
    """
    if all(map(operator.lt, ranks, islice(ranks, 1, None))):
        return []
    lowest_ends: list[int] = []  # lowest last rank of an increasing subsequence, by length
    ends: list[int] = []  # and its place
    before: list[int] = []  # by place: its predecessor in the longest subsequence that ends here
    for place, rank in enumerate(ranks):
        length = bisect_left(lowest_ends, rank)
        before.append(ends[length - 1] if length else -1)
        lowest_ends[length : length + 1] = [rank]
        ends[length : length + 1] = [place]
    kept = set()
    place = ends[-1]
    while place >= 0:
        kept.add(place)
        place = before[place]
    return [place for place in range(len(ranks)) if place not in kept]


def out_of_order_with(place: int, ranks: Sequence[int], misplaced: frozenset[int]) -> int:
    """Find the nearest place that is in order and that a displaced place contradicts.

    Args:
        place: a place returned by `displaced`.
        ranks: the sequence.
        misplaced: all places returned by `displaced`.

    Returns:
        An earlier place with a higher rank, or a later place with a lower one.
    """
    rank = ranks[place]
    for distance in range(1, len(ranks)):
        before, behind = place - distance, place + distance
        if before >= 0 and before not in misplaced and ranks[before] > rank:
            return before
        if behind < len(ranks) and behind not in misplaced and ranks[behind] < rank:
            return behind
    raise ValueError(f"place {place} is in order")
