"""The decision of a batch: which attempts of its tasks are committed. Pure.

There is one for each batch of a query, whoever runs the batch and however often. It is stored
before anything is committed, so a run that finds it commits the same rows.

Numbers are in big-endian order:

| Part | Bytes | What |
|---|---|---|
| head | 1 | the version of this format: 2, or 1 without a digest |
| | 16 | id of the query |
| | 8 | number of the batch |
| | 4 | number of streams |
| | 8 | the digest of the rows, see `row_digest`; not in version 1 |
| each stream | 2, then as many | length and name, in UTF-8 |
| each producer | 6 | its id |
| | 8 | the clock before its first row |
| | 8 | the clock of its last row |
| | 4 | number of its partitions |
| each of these | 4 | number of the stream in the list above |
| | 4 | partition |
| | 8 | offset of its first row |
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct, error
from typing import Final, Self
from uuid import UUID

from liftbridge_aio.errors import MalformedData
from liftbridge_aio.transactions.core.transaction import AckIntent

from .one_shot_producer import UncommittedRows

_WITHOUT_DIGEST: Final = 1
_VERSION: Final = 2
_HEAD: Final = Struct(">B16sQI")
_DIGEST: Final = Struct(">Q")
_NAME: Final = Struct(">H")
_PRODUCER: Final = Struct(">6sQQI")
_BEGIN: Final = Struct(">IIq")


@dataclass(frozen=True, slots=True)
class Decision:
    """The commit of a batch."""

    query: UUID
    batch: int
    rows: tuple[UncommittedRows, ...]
    digest: int | None = None
    """Of the rows, see `row_digest`; None: it is not known."""

    def __str__(self) -> str:
        return f"batch {self.batch} of query {self.query}"

    @property
    def row_count(self) -> int:
        """The number of rows that it commits."""
        return sum(rows.row_count for rows in self.rows)

    def intents(self) -> Iterator[AckIntent]:
        """Return the acks that commit the batch."""
        for rows in self.rows:
            yield from rows.intents()

    def encode(self) -> bytes:
        """Encode it; 18 bytes for each producer and partition, about."""
        names = sorted({stream for rows in self.rows for stream, _, _ in rows.begins})
        number = {name: index for index, name in enumerate(names)}
        version = _WITHOUT_DIGEST if self.digest is None else _VERSION
        parts = [_HEAD.pack(version, self.query.bytes, self.batch, len(names))]
        if self.digest is not None:
            parts.append(_DIGEST.pack(self.digest))
        for name in names:
            encoded = name.encode()
            parts += _NAME.pack(len(encoded)), encoded
        for producer, previous, clock, begins in self.rows:
            parts.append(_PRODUCER.pack(producer, previous, clock, len(begins)))
            parts += (_BEGIN.pack(number[stream], *rest) for stream, *rest in begins)
        return b"".join(parts)

    @classmethod
    def decode(cls, encoded: bytes) -> Self:
        """Decode what `encode` returned.

        Raises:
            MalformedData: it is something else, or of a later version.
        """
        try:
            return cls._decode(encoded)
        except (IndexError, UnicodeDecodeError, error) as problem:
            raise MalformedData(
                f"{len(encoded)} bytes that are no decision of a batch"
            ) from problem

    @classmethod
    def _decode(cls, encoded: bytes) -> Self:
        version, query, batch, count = _HEAD.unpack_from(encoded)
        if version not in {_WITHOUT_DIGEST, _VERSION}:
            raise MalformedData(
                f"a decision of version {version}, and this package reads version {_VERSION}"
            )
        at = _HEAD.size
        digest = None
        if version == _VERSION:
            [digest] = _DIGEST.unpack_from(encoded, at)
            at += _DIGEST.size
        names = []
        for _ in range(count):
            [length] = _NAME.unpack_from(encoded, at)
            at += _NAME.size + length
            names.append(encoded[at - length : at].decode())
        rows = []
        while at < len(encoded):
            producer, previous, clock, count = _PRODUCER.unpack_from(encoded, at)
            at += _PRODUCER.size
            end = at + count * _BEGIN.size
            begins = tuple(
                (names[number], partition, begin)
                for number, partition, begin in _BEGIN.iter_unpack(encoded[at:end])
            )
            if len(begins) < count:
                raise IndexError(end)
            rows.append(UncommittedRows(producer, previous, clock, begins))
            at = end
        return cls(UUID(bytes=query), batch, tuple(rows), digest)
