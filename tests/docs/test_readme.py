"""The front page: its commands come first, it leads to every page, and it stands alone."""

from __future__ import annotations

import re
from typing import Final

from support.markdown import ROOT, blocks

README: Final = ROOT / "README.md"
CONSOLE: Final = [line for block in blocks(README, "console") for line in block.code.splitlines()]
MOST_LINES: Final = 165


def test_the_two_commands_come_first_and_word_for_word() -> None:
    install = "python3 -m venv .venv && .venv/bin/pip install nox"
    assert CONSOLE[:2] == [f"{install} && .venv/bin/nox -s demo", ".venv/bin/nox -s tests"]
    tasks = (ROOT / "noxfile.py").read_text()
    for command in CONSOLE[:2]:
        assert f"def {command.rpartition(' ')[2]}(" in tasks


def test_it_is_short() -> None:
    assert len(README.read_text().splitlines()) <= MOST_LINES


def test_it_renders_without_the_repository_beside_it() -> None:
    targets = re.findall(r"\]\(([^)]+)\)", README.read_text())
    assert [target for target in targets if not target.startswith("https://")] == []


def test_it_names_every_page() -> None:
    named = set(re.findall(r"`([\w/-]+\.md)`", README.read_text()))
    pages = {f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md")}
    assert pages - named <= {"docs/index.md", "docs/changelog.md"}
    assert [name for name in named if not (ROOT / name).exists()] == []
