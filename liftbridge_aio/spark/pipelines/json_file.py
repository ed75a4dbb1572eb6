"""Files of JSON that are replaced atomically: a crash leaves the old content or the new one."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def replace_json(path: Path, content: Any) -> None:
    """Create or replace a file, so that it survives a failure of the machine.

    Raises:
        OSError: it cannot be written; what was there is unchanged.
    """
    written = path.with_name(f"{path.name}.tmp")
    with written.open("w", encoding="utf-8") as file:
        json.dump(content, file, indent=1, sort_keys=True)
        file.flush()
        os.fsync(file.fileno())
    written.replace(path)


def read_json(path: Path) -> dict[str, Any] | None:
    """Return the object in a file; None if there is no file.

    Raises:
        OSError: it cannot be read.
        ValueError: it has something else; the text names the file and the line.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    try:
        content = json.loads(text)
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} has no JSON object")  # noqa: TRY004 - the content of a file is no argument
    return content
