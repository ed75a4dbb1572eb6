"""The table of what goes wrong elsewhere names every fault once, and tests that exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import Final

from support.markdown import ROOT

TESTS: Final = ROOT / "tests"
ROWS: Final = re.findall(
    r"^\| ((?:B|S|C2-)\d+) \|(.*)\|(.*)\|$",
    (TESTS / "faults" / "README.md").read_text(),
    re.MULTILINE,
)
FAULTS: Final = (("B", 30), ("S", 10), ("C2-", 14))


def test_each_fault_has_one_row() -> None:
    known = [f"{kind}{number}" for kind, count in FAULTS for number in range(1, count + 1)]
    assert sorted(name for name, _, _ in ROWS) == sorted(known)


def test_each_row_says_what_goes_wrong_and_names_a_test() -> None:
    assert [name for name, there, _ in ROWS if not there.strip().endswith(".")] == []
    assert [name for name, _, here in ROWS if not named(here)] == []


def test_each_test_exists() -> None:
    tests = {test for _, _, here in ROWS for test in named(here)}
    assert len(tests) > 80
    assert [test for test in sorted(tests) if not exists(*test.split("::"))] == []


def named(cell: str) -> list[str]:
    return re.findall(r"`([\w/]+\.py::\w+)`", cell)


def exists(file: str, test: str) -> bool:
    return test.startswith("test_") and test in functions(TESTS / file)


@cache
def functions(path: Path) -> frozenset[str]:
    if not path.name.startswith("test_") or not path.exists():
        return frozenset()
    found = ast.parse(path.read_text()).body
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(node.name for node in found if isinstance(node, kinds))
