"""Reads what the tests of the documentation look at: code blocks and tables of Markdown."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
_BLOCK: Final = re.compile(
    r"(?:^<!-- setup: (?P<setup>\w+) -->\n)?^```(?P<language>\w+)\n(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block, the line of the file that it begins at, and the setup that it names."""

    language: str
    code: str
    line: int
    setup: str | None

    def __str__(self) -> str:
        return f"line-{self.line}"


def blocks(path: Path, language: str) -> list[Block]:
    text = path.read_text()
    return [
        Block(
            match["language"],
            match["code"],
            text.count("\n", 0, match.start("code")) + 1,
            match["setup"],
        )
        for match in _BLOCK.finditer(text)
        if match["language"] == language
    ]


def table(path: Path, heading: str) -> list[list[str]]:
    """The rows of the table whose first column is headed `heading`; no header, no rule."""
    lines = path.read_text().splitlines()
    starts = [n for n, line in enumerate(lines) if line.startswith(f"| {heading} |")]
    assert len(starts) == 1, f"{len(starts)} tables are headed {heading!r}"
    rows = []
    for line in lines[starts[0] + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]])
    return rows


def names(cell: str) -> list[str]:
    """Return the texts in backticks."""
    return re.findall(r"`([^`]+)`", cell)
