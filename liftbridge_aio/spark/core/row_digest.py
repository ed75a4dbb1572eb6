"""A digest of rows that does not depend on their order, or on how tasks share them. Pure.

It tells whether a write with a name that was used before has the same rows. It is no protection
against rows that are made to have the digest of others.

The code of a row is the CRC-32 of its stream, partition column, headers, key and value, one after
the other. The digest is the sum of the squares of all codes, modulo 2 to the power of 64. Squares,
as CRCs are linear: their sum is often the same if two rows exchange a part.

For a row of 100 bytes with a key it takes 0.35 µs of the 20 µs in which a task writes the row.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import repeat
from marshal import dumps
from operator import mul, xor
from typing import Final, cast
from zlib import crc32

from .row_placement import Rows

_MODULUS: Final = 1 << 64
_BEFORE_VALUE: Final = 0x1E3779B9
"""Changes the code where a value begins, so that the end of a key is not the beginning of a value.
The other parts say where they end."""
_WHOLE: Final = 4096
"""Bytes of a value above which only its ends and its length count: of 10 KiB, all would take too
large a part of the time to write them."""
_END: Final = 512


def rows_digest(rows: Rows, stream: str | None) -> int:
    """Return the digest of rows.

    Args:
        rows: checked: each has a value, and a stream unless all have the same.
        stream: the stream of all rows; None: each row names its own.
    """
    codes: Iterable[int]
    if stream is not None:
        codes = repeat(crc32(b"%s\0" % stream.encode()))
    else:
        codes = map(crc32, [b"%s\0" % each.encode() for each in cast("list[str]", rows.streams)])
    for parts in (_partitions(rows), _headers(rows), _keys(rows)):
        if parts is not None:
            codes = map(crc32, parts, codes)
    codes = map(xor, codes, repeat(_BEFORE_VALUE))
    values = cast("list[bytes]", rows.values)
    if max(map(len, values)) > _WHOLE:
        codes = map(xor, codes, map(len, values))
        values = [v if len(v) <= _WHOLE else v[:_END] + v[-_END:] for v in values]
    codes = list(map(crc32, values, codes))
    squares: Iterable[int] = map(mul, codes, codes)
    return sum(squares) % _MODULUS


def joined_digest(digests: Iterable[int]) -> int:
    """Return the digest of the rows of several digests together."""
    return sum(digests) % _MODULUS


def _partitions(rows: Rows) -> Iterable[bytes] | None:
    if rows.partitions is None:
        return None
    return [b"" if each is None else b"\0partition %d\0" % each for each in rows.partitions]


def _headers(rows: Rows) -> Iterable[bytes] | None:
    if rows.headers is None:
        return None
    # A third of the time of anything else. No release of Python has changed the first format.
    if all(rows.headers):
        return map(dumps, rows.headers, repeat(0))
    return [dumps(each, 0) if each else b"" for each in rows.headers]


def _keys(rows: Rows) -> Iterable[bytes] | None:
    if rows.keys is None or None not in rows.keys:
        return cast("list[bytes] | None", rows.keys)
    return [key or b"" for key in rows.keys]
