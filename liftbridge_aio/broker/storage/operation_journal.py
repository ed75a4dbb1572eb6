"""Operations on disk: JSON in the entries of a journal."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final, get_args

from .core.operation_list import IndexedOperation, condense
from .core.operations import CreateStream, Operation, PartitionPlacement
from .core.stream_config import StreamConfig
from .journal import CorruptJournal, Journal

_KINDS: Final[dict[str, type[Operation]]] = {kind.__name__: kind for kind in get_args(Operation)}
_MIN_CONDENSED: Final = 2_000  # entries


class OperationJournal:
    """The stored operations of one broker."""

    def __init__(self, journal: Journal) -> None:
        """Read the stored operations; condense the journal if that halves it.

        Raises:
            CorruptJournal: an entry is no operation that this version knows.
            OSError: it cannot be rewritten.
        """
        self._journal = journal
        self.stored: Sequence[IndexedOperation] = [
            _decode_entry(journal, number) for number in range(len(journal.entries))
        ]
        """The operations that were stored when the journal was opened."""
        self.last_index = max((index for index, _ in self.stored), default=0)
        """The highest index of these, before condensing."""
        if len(self.stored) < _MIN_CONDENSED:
            return
        condensed = condense(self.stored)
        if 2 * len(condensed) <= len(self.stored):
            journal.rewrite(encode(*numbered) for numbered in condensed)
            self.stored = condensed

    def append(self, index: int, operation: Operation) -> None:
        """Store an operation, before it is applied.

        Raises:
            OSError: it cannot be stored.
        """
        self._journal.append(encode(index, operation))


def encode(index: int, operation: Operation) -> bytes:
    """Encode an operation."""
    entry = {"index": index, "kind": type(operation).__name__, "fields": asdict(operation)}
    return json.dumps(entry, ensure_ascii=False, separators=(",", ":")).encode(
        "utf-8", "surrogatepass"
    )


def _decode_entry(journal: Journal, number: int) -> IndexedOperation:
    try:
        return decode(journal.entries[number])
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CorruptJournal(
            f"entry {number + 1} of {journal.path} is no operation that this version knows; "
            "use the version that wrote it, or begin with an empty data directory"
        ) from error


def decode(entry: bytes) -> IndexedOperation:
    """Decode what `encode` returned; anything else raises an error of any kind."""
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
