"""The fewest of the parts of a failing run that still fail."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

_T = TypeVar("_T")


def fewest(parts: Sequence[_T], fails: Callable[[tuple[_T, ...]], bool]) -> tuple[_T, ...]:
    """Return parts with which a run still fails, none of which can be left out.

    Halves are left out, then quarters, …, then single parts.

    Args:
        parts: those with which it fails.
        fails: runs it with some of them.
    """
    kept = tuple(parts)
    size = len(kept)
    while kept:
        size = max(size // 2, 1)
        at = 0
        found = False
        while at < len(kept):
            fewer = kept[:at] + kept[at + size :]
            if fails(fewer):
                kept, found = fewer, True
            else:
                at += size
        if size == 1 and not found:
            break
    return kept
