"""Messages as columns: a list for each field, for those who make tables of them.

Making an object of every message, only to take it apart again, costs more than all the rest of
reading it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat
from operator import add, sub
from typing import Final

from liftbridge_aio.errors import MalformedData
from liftbridge_aio.model import ACK_HEADER, RESERVED_HEADERS, UUID_HEADER

from .columns import (
    MESSAGE_SEPARATOR,
    MIN_MESSAGES,
    NO_BYTES,
    NO_NUMBER,
    UnevenColumns,
    separated,
    separated_or_absent,
)
from .hot_schema import PARSE_ERRORS, MessageColumns, WireMessage, split_headers

_AT_ONCE: Final = 512
"""Messages that are parsed together, at most."""
_LARGE_BYTES: Final = 2**14
"""A message above goes alone, so that no more than 8 MiB are copied to be parsed together."""


_MARK: Final = b"txn-"
"""The beginning of the names of headers of transactions."""
_UUID_ENTRY: Final = b"J\x1c\n\x08txn-uuid\x12\x10"
"""The beginning of the header of a UUID of 16 bytes."""
_ENTRY_BYTES: Final = len(_UUID_ENTRY)
_BEFORE_VALUE: Final = 24
"""More bytes than the numbers before a value have."""
_ALIKE_BYTES: Final = 12
"""By how much the numbers before the headers differ in size, at most. A header has more bytes."""


@dataclass(slots=True)
class ColumnBatch:
    """Fields of messages, in order; of the rest, what is asked for is read then.

    Made by `Subscription.read_columns`. Treat it as read-only.
    """

    offsets: list[int]
    keys: list[bytes]
    """Empty where the publisher gave none: the wire does not tell the two apart."""
    values: list[bytes]
    timestamps: list[int]
    """When the leader received each, in Unix nanoseconds."""
    data: list[bytes]
    """The encoded messages, as they came."""

    def __len__(self) -> int:
        return len(self.offsets)

    def headers(self) -> list[dict[str, bytes]]:
        """Read the publisher's headers of each message; see `Message.headers`."""
        return [split_headers(WireMessage.FromString(each))[0] for each in self.data]

    @property
    def has_transactions(self) -> bool:
        """True if some may have headers of transactions, which stand behind the value."""
        values = map(add, map(len, self.keys), map(len, self.values))
        return max(map(bytes.find, self.data, repeat(_MARK), values), default=-1) >= 0

    def transaction_headers(self) -> tuple[list[bytes | None], dict[int, bytes]]:
        """Read the headers of transactions.

        Returns:
            The UUID of each message, None for one without; and what the header of an ack holds, by
            the index of the message.
        """
        uuids: list[bytes | None] = []
        acks: dict[int, bytes] = {}
        for start in range(0, len(self.data), _AT_ONCE):
            span = slice(start, start + _AT_ONCE)
            found = _alike(self.data[span], self.keys[span], self.values[span])
            if found is None:
                own = [split_headers(WireMessage.FromString(each))[1] for each in self.data[span]]
                for index, headers in enumerate(own, start):
                    if ACK_HEADER in headers:
                        acks[index] = headers[ACK_HEADER]
                found = [headers.get(UUID_HEADER) for headers in own]
            uuids += found
        return uuids, acks

    def subjects(self) -> list[str]:
        """Read the NATS subject on which each message arrived."""
        return [WireMessage.FromString(each).subject for each in self.data]

    def slice(self, start: int, stop: int) -> ColumnBatch:
        """Return the rows from one index to before another."""
        return ColumnBatch(
            self.offsets[start:stop],
            self.keys[start:stop],
            self.values[start:stop],
            self.timestamps[start:stop],
            self.data[start:stop],
        )

    def select(self, places: Sequence[int]) -> ColumnBatch:
        """Return the rows at these indexes, in that order."""
        return ColumnBatch(
            [self.offsets[place] for place in places],
            [self.keys[place] for place in places],
            [self.values[place] for place in places],
            [self.timestamps[place] for place in places],
            [self.data[place] for place in places],
        )


def _alike(datas: list[bytes], keys: list[bytes], values: list[bytes]) -> list[bytes | None] | None:
    """Find the UUIDs of messages that have no headers but that and what servers add.

    They are found by their bytes behind the value. Whether there are other headers, in which the
    same bytes could stand, the largest message tells: any further header would make it larger.

    Returns:
        None if the messages have other headers, or differ too much to tell.
    """
    extents = list(map(sub, map(len, datas), map(add, map(len, keys), map(len, values))))
    largest = max(extents)
    if largest - min(extents) > _ALIKE_BYTES:
        return None
    headers = WireMessage.FromString(datas[extents.index(largest)]).headers
    if {header.name for header in headers} - {*RESERVED_HEADERS, UUID_HEADER}:
        return None
    # A value ends there, or a few bytes behind.
    starts = list(map(sub, map(len, datas), extents))
    places = list(map(bytes.rfind, datas, repeat(_UUID_ENTRY), starts))
    if min(map(sub, places, starts)) >= _BEFORE_VALUE:
        return [
            data[at + _ENTRY_BYTES : at + _ENTRY_BYTES + 16]
            for data, at in zip(datas, places, strict=True)
        ]
    found: list[bytes | None] = []
    for data, start, at in zip(datas, starts, places, strict=True):
        if at < 0:
            found.append(None)
        elif at < start + _BEFORE_VALUE:
            found.append(split_headers(WireMessage.FromString(data))[1].get(UUID_HEADER))
        else:
            found.append(data[at + _ENTRY_BYTES : at + _ENTRY_BYTES + 16])
    return found


def decode_columns(datas: list[bytes]) -> tuple[ColumnBatch, MalformedData | None]:
    """Read many Messages, up to the first that cannot be read.

    Returns:
        What was read, and the error of the one where it ended.
    """
    read = ColumnBatch([], [], [], [], datas)
    for start in range(0, len(datas), _AT_ONCE):
        part = datas[start : start + _AT_ONCE]
        if not _add_together(read, part):
            broken = _add_one_by_one(read, part)
            if broken is not None:
                read.data = datas[: len(read)]
                return read, broken
    return read, None


def _add_together(read: ColumnBatch, part: list[bytes]) -> bool:
    """Read messages by one parse, see `columns`; False if they have to be read one by one."""
    count = len(part)
    if count < MIN_MESSAGES or max(map(len, part)) > _LARGE_BYTES:
        return False
    try:
        columns = MessageColumns.FromString(MESSAGE_SEPARATOR.join(part))
        offsets = separated(columns.offset, NO_NUMBER, count)
        keys = separated_or_absent(columns.key, NO_BYTES, count)
        values = separated_or_absent(columns.value, NO_BYTES, count)
        timestamps = separated(columns.timestamp, NO_NUMBER, count)
    except (*PARSE_ERRORS, UnevenColumns):
        return False
    read.offsets += offsets
    read.keys += keys
    read.values += values
    read.timestamps += timestamps
    return True


def _add_one_by_one(read: ColumnBatch, part: list[bytes]) -> MalformedData | None:
    for data in part:
        try:
            wire = WireMessage.FromString(data)
        except PARSE_ERRORS as error:
            broken = MalformedData(f"a message of {len(data)} bytes cannot be read")
            broken.__cause__ = error
            return broken
        read.offsets.append(wire.offset)
        read.keys.append(wire.key)
        read.values.append(wire.value)
        read.timestamps.append(wire.timestamp)
    return None
