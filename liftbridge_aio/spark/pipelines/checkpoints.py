"""Whether a checkpoint of Spark is that of the query that wrote a folder of files.

Each query numbers its batches from 0, so their numbers do not tell. The id of a query is in its
checkpoint, and this package notes it in the folder of the files.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Final

from .json_file import read_json, replace_json

NOTE: Final = "_query.json"
NO_BATCH: Final = -1
_ID: Final = "id"


def newest_batch(log: Path) -> int:
    """Return the newest batch in a log of Spark, whose files are `N` and `N.compact`."""
    if not log.is_dir():
        return NO_BATCH
    numbers = (each.name.removesuffix(".compact") for each in log.iterdir())
    return max((int(number) for number in numbers if number.isdecimal()), default=NO_BATCH)


def note_query(files: Path, query: str) -> None:
    """Note the id of the query that writes to a folder.

    Raises:
        OSError: it cannot be written.
    """
    if _query(files / NOTE) != query:
        replace_json(files / NOTE, {_ID: query})


def other_query(checkpoint: Path, files: Path) -> str | None:
    """Return that another query wrote the files; None if it did not, or if that is not known."""
    # Spark writes this file when a query begins with a new checkpoint.
    noted, query = _query(files / NOTE), _query(checkpoint / "metadata")
    if None in {noted, query} or noted == query:
        return None
    return f"{files} has rows of query {noted}, and {checkpoint} is that of query {query}"


def _query(file: Path) -> str | None:
    with suppress(ValueError):  # Spark says what is wrong with its own
        return (read_json(file) or {}).get(_ID)
    return None
