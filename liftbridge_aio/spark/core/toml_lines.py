"""Find the lines of tables and keys in TOML, which the standard parser does not tell. Pure."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from typing import Any, Final

_PART: Final = r"""(?:[\w-]+|"[^"]*"|'[^']*')"""
_QUOTES: Final = ('"""', "'''")
_KEY: Final = re.compile(rf"\s*({_PART}(?:\s*\.\s*{_PART})*)\s*=")

KeyPath = tuple[str, ...]
"""The keys that lead to a value."""

FIRST_LINE: Final = ""
"""Behind the keys of a text: its first line, which may be the one after its quotes."""


def key_lines(text: str) -> dict[KeyPath, int]:
    """Return the line of each table and each key of a TOML document that is valid."""
    lines: dict[KeyPath, int] = {}
    table: KeyPath = ()
    closing: str | None = None
    for number, line in enumerate(text.splitlines(), 1):
        if closing is not None:
            closing = None if closing in line else closing
            continue
        if line.lstrip().startswith("["):
            header = line.strip().split("#")[0].strip()
            try:
                table = _path(tomllib.loads(header))
            except tomllib.TOMLDecodeError:  # the rest of an array
                continue
            lines.setdefault(table, number)
        elif key := _KEY.match(line):
            path = (*table, *_path(tomllib.loads(f"{key[1]} = 0")))
            rest = line[key.end() :].strip()
            lines[path] = number
            lines[*path, FIRST_LINE] = number + (rest in _QUOTES)
            for quotes in _QUOTES:
                if rest.startswith(quotes) and quotes not in rest[3:]:
                    closing = quotes
    return lines


def _path(content: Any) -> KeyPath:
    keys: list[str] = []
    while content and isinstance(content, dict):
        [(key, content)] = content.items()
        keys.append(key)
    return tuple(keys)


def nearest_line(lines: Mapping[KeyPath, int], path: KeyPath) -> int | None:
    """Return the line of a key, or of what it would be in."""
    for length in range(len(path), 0, -1):
        if path[:length] in lines:
            return lines[path[:length]]
    return None
