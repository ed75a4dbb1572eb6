"""Which cursor has the position of a reader in the log that a stream has now. Pure.

A stream that is deleted and created again has another log, whose offsets mean other messages. A
cursor holds one number, so the log of a position is noted in a cursor of its own: the creation time
of the stream, written once, before the first position. Positions in a later log get cursors of
their own, named after its creation time. So each position is written by one call, and a crash
between two calls cannot tie it to another log. Lowering a cursor would not do: v1.9.0 servers
recover the highest value that it ever had.

| note | position | where the reader begins |
|---|---|---|
| absent | absent | at its start; the note is written before the first position |
| absent | present | after the position of an earlier version or a Go client; the note follows |
| same | absent | at its start: the last reader ended before it stored a position |
| same | present | after the position |
| other | absent | at its start: nothing of the other log was finished; the note is written anew |
| other | present | after the position under `log_cursor`; without one, the log was replaced |
"""

from __future__ import annotations

from typing import NamedTuple


class LogPosition(NamedTuple):
    """The position of a reader in the log that a stream has now."""

    cursor: str
    """The id of the cursor that has it, or is to have it."""
    position: int | None
    """The last finished offset of this log; None if none is stored."""
    former: int | None = None
    """The stored position in a former log, if there is none in this one."""
    created: int = 0
    """When the stream was created, in Unix nanoseconds; 0 if that is not known."""
    note_due: bool = False
    """True if the note must be written before the first position."""


def note_cursor(cursor_id: str) -> str:
    """Return the id of the cursor that has the creation time of the log of another cursor."""
    return f"__created:{cursor_id}"


def log_cursor(cursor_id: str, created: int) -> str:
    """Return the id of the cursor that has the position in a log that was created later."""
    return f"__log:{created}:{cursor_id}"


def judge_note(cursor_id: str, stored: int | None, noted: int | None, created: int) -> LogPosition:
    """Return the position; where the cursor is that of another log, as if there were none.

    Args:
        cursor_id: the id of the cursor.
        stored: what it holds.
        noted: the creation time that was noted for it.
        created: the creation time of the stream; 0 if it is not known.
    """
    if stored is None or noted in {None, created} or not created:
        due = created not in {0, noted}
        return LogPosition(cursor_id, stored, created=created, note_due=due)
    return LogPosition(log_cursor(cursor_id, created), None, stored, created)
