"""The guide to consumer groups: its tables are complete."""

from __future__ import annotations

import inspect
from typing import Final

from liftbridge_aio import ConsumerGroup, GroupState, Hook
from support.markdown import ROOT, names, table

GUIDE: Final = ROOT / "docs" / "groups.md"


def test_its_table_names_every_state() -> None:
    shown = [name for row in table(GUIDE, "State") for name in names(row[0])]
    assert shown == list(GroupState.__members__)


def test_its_table_names_all_that_a_member_can_do() -> None:
    cells = [cell for row in table(GUIDE, "Call") for cell in row]
    shown = {name.removesuffix("()") for cell in cells for name in names(cell)}
    face = {
        name
        for name, value in vars(ConsumerGroup).items()
        if not name.startswith("_") and (inspect.isfunction(value) or isinstance(value, property))
    }
    assert shown >= face


def test_the_events_that_it_names_exist() -> None:
    text = GUIDE.read_text()
    for name in ("group_changed", "commit_failed", "partition_blocked", "handler_failed"):
        assert f"`{name}`" in text
        assert callable(getattr(Hook, name))
