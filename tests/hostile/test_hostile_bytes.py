"""Any bytes at all, and sound ones that were spoilt: typed errors, bounded memory, no surprise."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hostile.fuzz import FOUND, at_random, try_out
from hostile.mutation import mutated
from hostile.targets import SEEDS, TARGETS
from support.examples import examples


@pytest.mark.parametrize("name", TARGETS)
@settings(max_examples=examples(60))
@given(data=st.binary(max_size=300))
def test_any_bytes(name: str, data: bytes) -> None:
    TARGETS[name](data)


@pytest.mark.parametrize("name", TARGETS)
@settings(max_examples=examples(120))
@given(seed=st.integers(0, 2**32))
def test_spoilt_bytes(name: str, seed: int) -> None:
    TARGETS[name](mutated(random.Random(seed), SEEDS[name]))


@pytest.mark.parametrize("name", TARGETS)
def test_sound_bytes(name: str) -> None:
    """Each target accepts its samples before they are corrupted."""
    for sample in SEEDS[name]:
        TARGETS[name](sample)


def test_what_was_found_does_no_harm_any_more() -> None:
    for kept in FOUND.glob("*/*"):
        TARGETS[kept.parent.name](kept.read_bytes())


def test_what_does_harm_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def harmed(data: bytes) -> None:
        assert not data

    monkeypatch.setattr("hostile.fuzz.FOUND", tmp_path)
    monkeypatch.setitem(TARGETS, "lane", harmed)
    with pytest.raises(AssertionError):
        at_random("lane", 5.0, seed=1)
    [kept] = tmp_path.glob("lane/*")
    assert kept.read_bytes()
    with pytest.raises(AssertionError):
        try_out("lane", kept.read_bytes())


def test_the_command_says_how_much_it_tried() -> None:
    tests = Path(__file__).parents[1]
    command = [sys.executable, "-m", "hostile.fuzz", "--seconds", "0.2", "--at-random"]
    told = subprocess.run(
        [*command, "--target", "lane", "--target", "replies"],
        cwd=tests,
        env={"PYTHONPATH": f"{tests}:{tests.parent}"},
        capture_output=True,
        text=True,
        timeout=50,
        check=True,
    )
    assert [line.split()[0] for line in told.stdout.splitlines()] == ["lane", "replies"]
