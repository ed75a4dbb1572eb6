"""How far a sequence is from being in order."""

from __future__ import annotations

import operator
from bisect import bisect_left
from collections.abc import Sequence
from itertools import islice


def displaced(ranks: Sequence[int]) -> list[int]:
    """Which places of a sequence would have to be left out for the rest to rise.

    It is the smallest such choice (what a longest increasing subsequence leaves over), so one
    message that came too late counts once, however many it was overtaken by. There may be several
    smallest choices; this is one of them. Takes n log n steps, and n if all is in order.

    Args:
        ranks: numbers, all different.

    Returns:
        Places in `ranks`, rising.
    """
    if all(map(operator.lt, ranks, islice(ranks, 1, None))):
        return []
    lowest_ends: list[int] = []  # by length: the lowest rank that ends a rising run of that length
    ends: list[int] = []  # and its place
    before: list[int] = []  # by place: the place before it in the longest run that ends here
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
    """The nearest place, of those that stand right, that a displaced one contradicts.

    Args:
        place: one that `displaced` gave.
        ranks: the sequence.
        misplaced: all that `displaced` gave.

    Returns:
        A place before it with a higher rank, or behind it with a lower one.
    """
    rank = ranks[place]
    for distance in range(1, len(ranks)):
        before, behind = place - distance, place + distance
        if before >= 0 and before not in misplaced and ranks[before] > rank:
            return before
        if behind < len(ranks) and behind not in misplaced and ranks[behind] < rank:
            return behind
    text = f"place {place} is in order"
    raise ValueError(text)
