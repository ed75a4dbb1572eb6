"""Positions in a stream that may begin in others, and the offsets that clients see. Pure.

A gateway keeps each stream in a log of its own. A fork begins with parts of other logs, its
ancestors', and continues in its own. Messages are numbered through all of them: a position is the
number of messages of a stream before it. An offset is a position with the incarnation of the log
that has the last message before it, so offsets of a stream that was deleted are told apart from
those of its successor, and a fork shares those of its source up to where it begins.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_OFFSET: Final = re.compile(r"([0-9]{16})_([0-9]{16})")
_BEGIN: Final = "0" * 16


class Segment(NamedTuple):
    """Part of a stream that stands in the log of an ancestor."""

    log: str
    """Liftbridge's name of the log."""
    incarnation: int
    start: int
    """Position of the first message of the log."""
    end: int
    """Position where the part ends."""


class Location(NamedTuple):
    """A position: a log, and an offset of Liftbridge in it."""

    log: str
    offset: int
    limit: int | None
    """The offset of Liftbridge where the part ends; None for the stream's own log."""


class UnknownOffset(Exception):
    """The offset is none of this stream.

    Args:
        gone: True if it may be one of a stream that was deleted before.
    """

    def __init__(self, *, gone: bool) -> None:
        self.gone = gone
        what = "belongs to a stream that was deleted" if gone else "lies beyond the stream"
        super().__init__(f"the offset {what}")


class Positions(NamedTuple):
    """The parts of a stream in order: those of its ancestors, and its own log."""

    ancestors: tuple[Segment, ...]
    log: str
    incarnation: int

    @property
    def start(self) -> int:
        """Position of the first message of the stream's own log."""
        return self.ancestors[-1].end if self.ancestors else 0

    def offset(self, position: int) -> str:
        """Return the offset that clients see for a position."""
        for part in self.ancestors:
            if position <= part.end:
                return f"{part.incarnation:016}_{position:016}"
        return f"{self.incarnation:016}_{position:016}"

    def position(self, offset: str) -> int | None:
        """Return the position for an offset; None if it has not the form of one.

        Raises:
            UnknownOffset: it has the form, and this stream has never returned it.
        """
        found = _OFFSET.fullmatch(offset)
        if found is None:
            return None
        incarnation, position = int(found[1]), int(found[2])
        if not incarnation and not position:
            return 0
        for part in self.ancestors:
            if incarnation == part.incarnation:
                return min(position, part.end)
        if incarnation != self.incarnation:
            raise UnknownOffset(gone=incarnation < self.incarnation)
        return max(position, self.start)

    def locate(self, position: int) -> Location:
        """Return the log and the offset of the message that follows a position."""
        for part in self.ancestors:
            if position < part.end:
                return Location(part.log, position - part.start, part.end - part.start)
        return Location(self.log, position - self.start, None)

    def until(self, position: int) -> tuple[Segment, ...]:
        """Return the segments of a fork that begins at a position."""
        own = Segment(self.log, self.incarnation, self.start, position)
        parts = (*self.ancestors, own) if position > self.start else self.ancestors
        return tuple(
            part._replace(end=min(part.end, position))
            for part in parts
            if part.start < position or not part.start
        )
