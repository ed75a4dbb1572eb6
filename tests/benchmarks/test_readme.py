"""Statements of the guide to the benchmarks, checked."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from benchmarks.clients import CLIENTS, USUAL
from benchmarks.flags import NAMES, parse_flags
from benchmarks.spark.command import NAMES as SPARK_NAMES
from benchmarks.spark.command import PEERS

GUIDE = (Path(__file__).resolve().parents[2] / "benchmarks" / "README.md").read_text()
COMMANDS = re.findall(r"^\$ (.+)$", GUIDE, re.MULTILINE)


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_is_understood(line: str) -> None:
    python, flag, module, *words = shlex.split(line)
    assert (python, flag, module) == ("python", "-m", "benchmarks")
    flags = parse_flags(words)
    assert set(flags.clients) <= set(PEERS if flags.name in SPARK_NAMES else CLIENTS)


def test_every_benchmark_and_every_client_is_named() -> None:
    assert COMMANDS
    for name in (*NAMES, *CLIENTS, *PEERS):
        assert re.search(rf"`(--peers )?{name}`", GUIDE), name
    [usual] = re.findall(r"Without `--peers`: ([^.]+)", GUIDE)
    assert set(re.findall(r"`([\w-]+)`", usual)) == set(USUAL)
