"""What the guides in the rooms say is true: their code runs, their tables name what there is."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any, Final

import pytest

from liftbridge_aio.broker import EmbeddedCluster, Faults
from liftbridge_aio.cli import app as command_line
from support.markdown import ROOT, Block, blocks, names

GUIDES: Final = sorted((ROOT / "liftbridge_aio").rglob("README.md"))
PYTHON: Final = [
    (guide, block)
    for guide in GUIDES
    for block in blocks(guide, "python")
    if block.setup is None  # those of the Spark room need a session, and have tests of their own
]
COMMANDS: Final = [
    line
    for guide in GUIDES
    for block in blocks(guide, "console")
    for line in block.code.splitlines()
]


def test_there_are_guides() -> None:
    front_page = (ROOT / "README.md").read_text()
    assert GUIDES
    for guide in GUIDES:
        assert f"({guide.relative_to(ROOT).as_posix()})" in front_page


@pytest.mark.parametrize(
    ("guide", "block"), PYTHON, ids=[f"{guide.parent.name}-{block}" for guide, block in PYTHON]
)
def test_code_runs_by_itself(guide: Path, block: Block) -> None:
    above = "\n" * (block.line - 1)  # so that errors name the line of the page
    code: Any = compile(above + block.code, str(guide), "exec", dont_inherit=True)
    exec(code, {"__name__": "guide"})  # noqa: S102


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_exists_and_takes_these_arguments(line: str) -> None:
    command, bound, _ = command_line.parse_args(
        shlex.split(line)[1:], exit_on_error=False, print_error=False
    )
    assert command.__module__.startswith("liftbridge_aio.cli.")
    assert bound is not None


@pytest.mark.parametrize("face", [Faults, EmbeddedCluster])
def test_the_methods_that_are_named_exist(face: type) -> None:
    guide = ROOT / "liftbridge_aio" / "broker" / "README.md"
    text = guide.read_text()
    part = {Faults: "## Faults", EmbeddedCluster: "## Clusters"}[face]
    section = text.partition(part)[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    named = {name for row in rows for name in names(row.split("|")[1])}
    assert named
    assert [name for name in sorted(named) if not callable(getattr(face, name, None))] == []
