"""Names of tests are short enough to be read in a list."""

from __future__ import annotations

import ast
from typing import Final

from support.markdown import ROOT

LONGEST: Final = 70


def test_no_test_has_a_longer_name() -> None:
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    names = [name for file in files for name in names_in(file.read_text())]
    assert len(names) > 1000
    assert [name for name in names if len(name) > LONGEST] == []


def names_in(text: str) -> list[str]:
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    found = [node for node in ast.walk(ast.parse(text)) if isinstance(node, functions)]
    return [node.name for node in found if node.name.startswith("test_")]
