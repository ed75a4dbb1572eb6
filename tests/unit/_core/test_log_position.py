"""Positions and the logs that they belong to, whatever crashes and is created again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liftbridge_aio._core.log_position import LogPosition, judge_note, log_cursor, note_cursor

CURSOR = "reader"
OLD, NOW = 1_700, 1_800
OTHER = log_cursor(CURSOR, NOW)


@pytest.mark.parametrize(
    ("noted", "stored", "expected"),
    [
        (None, None, LogPosition(CURSOR, None, None, NOW, note_due=True)),
        (None, 7, LogPosition(CURSOR, 7, None, NOW, note_due=True)),
        (NOW, None, LogPosition(CURSOR, None, None, NOW)),
        (NOW, 7, LogPosition(CURSOR, 7, None, NOW)),
        (OLD, None, LogPosition(CURSOR, None, None, NOW, note_due=True)),
        (OLD, 7, LogPosition(OTHER, None, 7, NOW)),
    ],
)
def test_the_table_of_notes_and_positions(
    noted: int | None, stored: int | None, expected: LogPosition
) -> None:
    assert judge_note(CURSOR, stored, noted, NOW) == expected


def test_an_unknown_creation_time_changes_nothing() -> None:
    assert judge_note(CURSOR, 7, OLD, 0) == LogPosition(CURSOR, 7)


class Servers:
    """Cursors, and a stream that is created again now and then."""

    def __init__(self) -> None:
        self.cursors: dict[str, int] = {}
        self.highest: dict[str, int] = {}
        self.created = 1
        self.handled = 0
        """Messages of this log that were handled, from its beginning."""
        self.committed = False
        """A position in this log is stored."""
        self.former_committed = False

    def set(self, cursor: str, value: int) -> None:
        self.cursors[cursor] = value
        self.highest[cursor] = max(value, self.highest.get(cursor, value))

    def restart(self) -> None:
        """Recover the highest values, as v1.9.0 servers do."""
        self.cursors = dict(self.highest)

    def create_anew(self) -> None:
        self.created += 1
        self.former_committed |= self.committed
        self.handled, self.committed = 0, False

    def locate(self) -> LogPosition:
        stored, noted = self.cursors.get(CURSOR), self.cursors.get(note_cursor(CURSOR))
        found = judge_note(CURSOR, stored, noted, self.created)
        position = self.cursors.get(found.cursor)
        if found.former is None or position is None:
            return found
        return found._replace(position=position, former=None)

    def session(self, messages: int) -> Iterator[None]:
        """Read some messages, and commit; a crash may come at each step."""
        found = self.locate()
        if found.former is not None:
            assert self.former_committed
            assert not self.committed
        begins = 0 if found.position is None else found.position + 1
        assert begins <= self.handled, "messages were skipped"
        assert begins > 0 or not self.committed, "a position was lost"
        yield
        created, end = self.created, begins + messages
        self.handled = max(self.handled, end)
        if found.note_due:
            self.set(note_cursor(CURSOR), found.created)
            yield
        self.set(found.cursor, end - 1)
        self.committed |= created == self.created
        yield


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 3), st.booleans(), st.booleans())))
def test_no_crash_ties_a_position_to_another_log(
    sessions: list[tuple[int, int, bool, bool]],
) -> None:
    servers = Servers()
    for messages, steps, created_anew, restarted in sessions:
        for _, _ in zip(range(steps), servers.session(messages), strict=False):
            pass
        if created_anew:
            servers.create_anew()
        if restarted:
            servers.restart()
    servers.locate()
