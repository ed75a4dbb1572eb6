"""Remembers which messages of a source are in the target."""

from __future__ import annotations

from collections.abc import Iterable


class KnownIds:
    """The ids of the last messages that were copied, of which there are at most `size`."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._ids: dict[bytes, None] = {}

    def __contains__(self, identity: bytes) -> bool:
        return identity in self._ids

    def add(self, identity: bytes) -> None:
        """Add an id; forget the oldest if there are too many."""
        ids = self._ids
        ids[identity] = None
        if len(ids) > self._size:
            del ids[next(iter(ids))]


def unbroken(sequences: Iterable[int]) -> tuple[int, frozenset[int]]:
    """Return up to where sequences follow each other without a gap, and those behind the gap.

    Args:
        sequences: at least one.
    """
    found = set(sequences)
    last = min(found)
    while last + 1 in found:
        last += 1
    return last, frozenset(each for each in found if each > last)
