"""The guide to the fault proxy: its table is complete."""

from __future__ import annotations

import inspect
from typing import Final

from liftbridge_aio.testing import FaultProxy
from support.markdown import ROOT, names, table

GUIDE: Final = ROOT / "docs" / "fault-injection.md"


def test_its_table_names_every_fault() -> None:
    shown = {name.removesuffix("()") for row in table(GUIDE, "Fault") for name in names(row[0])}
    methods = {name for name, value in vars(FaultProxy).items() if inspect.isfunction(value)}
    inherited = {name for base in FaultProxy.__mro__[1:] for name in vars(base)}
    assert shown == {name for name in methods - inherited if not name.startswith("_")}
