"""What the guide to the fault proxy says is true: its code runs, its table is complete."""

from __future__ import annotations

import inspect
from typing import Final

import pytest

from docs.markdown import ROOT, Block, blocks, names, table
from liftbridge_aio.testing import FaultProxy

GUIDE: Final = ROOT / "liftbridge_aio" / "testing" / "README.md"


@pytest.mark.parametrize("block", blocks(GUIDE, "python"), ids=str)
def test_its_code_runs(block: Block) -> None:
    exec(compile(block.code, str(GUIDE), "exec", dont_inherit=True), {"__name__": "guide"})  # noqa: S102


def test_its_table_names_every_fault() -> None:
    shown = {name.removesuffix("()") for row in table(GUIDE, "Fault") for name in names(row[0])}
    methods = {name for name, value in vars(FaultProxy).items() if inspect.isfunction(value)}
    assert shown == {name for name in methods if not name.startswith("_")}
