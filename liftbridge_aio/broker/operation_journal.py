"""Operations on disk: JSON in the entries of a journal."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final, get_args

from .journal import CorruptJournal, Journal
from .operation_list import Numbered, condense
from .operations import CreateStream, Operation, PartitionPlacement
from .stream_config import StreamConfig

_KINDS: Final[dict[str, type[Operation]]] = {kind.__name__: kind for kind in get_args(Operation)}
_WORTH_CONDENSING: Final = 2_000  # entries


class OperationJournal:
    """The list of operations of one broker."""

    def __init__(self, journal: Journal) -> None:
        """Read what is kept; drop what changes nothing any more, if that is worth it.

        Raises:
            CorruptJournal: an entry is no operation, or one of a later version.
            OSError: it cannot be rewritten.
        """
        self._journal = journal
        self.kept: Sequence[Numbered] = [
            _decode_entry(journal, number) for number in range(len(journal.entries))
        ]
        """What was kept when the journal was opened."""
        if len(self.kept) < _WORTH_CONDENSING:
            return
        condensed = condense(self.kept)
        if 2 * len(condensed) <= len(self.kept):
            journal.rewrite(encode(*numbered) for numbered in condensed)
            self.kept = condensed

    def keep(self, index: int, operation: Operation) -> None:
        """Keep an operation before it is applied.

        Raises:
            OSError: it cannot be kept.
        """
        self._journal.append(encode(index, operation))


def encode(index: int, operation: Operation) -> bytes:
    """Write an operation."""
    entry = {"index": index, "kind": type(operation).__name__, "fields": asdict(operation)}
    return json.dumps(entry, ensure_ascii=False, separators=(",", ":")).encode(
        "utf-8", "surrogatepass"
    )


def _decode_entry(journal: Journal, number: int) -> Numbered:
    try:
        return decode(journal.entries[number])
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        text = (
            f"entry {number + 1} of {journal.path} is no operation that this version knows; "
            "use the version that wrote it, or begin with an empty data directory"
        )
        raise CorruptJournal(text) from error


def decode(entry: bytes) -> Numbered:
    """Read what `encode` wrote; of anything else, whatever error comes of it."""
    read: dict[str, Any] = json.loads(entry.decode("utf-8", "surrogatepass"))
    kind = _KINDS[read["kind"]]
    fields = read["fields"]
    if kind is CreateStream:
        fields["config"] = StreamConfig(**fields["config"])
        fields["partitions"] = tuple(
            PartitionPlacement(replicas=tuple(one["replicas"]), leader=one["leader"])
            for one in fields["partitions"]
        )
    for name in ("partitions", "streams"):
        if isinstance(fields.get(name), list):
            fields[name] = tuple(fields[name])
    return read["index"], kind(**fields)
