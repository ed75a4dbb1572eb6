"""The guards that the simulation must miss stand in the code, and one of them is missed here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from .guards import GUARDS, Guard, path_of

pytestmark = pytest.mark.virtual_time


@pytest.mark.parametrize("guard", GUARDS.values(), ids=GUARDS)
def test_a_guard_stands_in_the_code_once(guard: Guard) -> None:
    assert path_of(guard).read_text(encoding="utf-8").count(guard.text) == 1


def test_the_code_without_a_guard_fails_from_a_seed() -> None:
    words = ("--without", "keys", "--program", "Queueing", "--count", "10")
    found = subprocess.run(
        [sys.executable, "-m", "simulation", *words],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 1, found.stderr
    assert "of its key was handled" in found.stdout
