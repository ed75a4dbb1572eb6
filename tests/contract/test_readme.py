"""The table of wire facts names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).resolve().parent
TABLE = (HERE / "README.md").read_text()


def test_every_fact_has_its_row() -> None:
    assert re.findall(r"^\| W(\d+) \|", TABLE, re.MULTILINE) == [f"{n}" for n in range(1, 32)]


def test_every_proof_is_a_test() -> None:
    proofs = re.findall(r"`(test_\w+)::(test_\w+)`", TABLE)
    assert proofs
    missing = [f"{file}::{test}" for file, test in proofs if not defines(file, test)]
    assert missing == []


def defines(file: str, test: str) -> bool:
    source = (HERE / f"{file}.py").read_text()
    return re.search(rf"^(async )?def {test}\(", source, re.MULTILINE) is not None
