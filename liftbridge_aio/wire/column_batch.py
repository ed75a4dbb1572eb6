"""Messages as columns: a list for each field, for those who make tables of them.

Making an object of every message, only to take it apart again, costs more than all the rest of
reading it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from liftbridge_aio.errors import MalformedData

from .columns import (
    MESSAGE_SEPARATOR,
    MIN_MESSAGES,
    NO_BYTES,
    NO_NUMBER,
    UnevenColumns,
    separated,
    separated_or_absent,
    transaction_headers,
)
from .hot_schema import PARSE_ERRORS, MessageColumns, WireMessage, split_headers

_AT_ONCE: Final = 512
"""Messages that are parsed together, at most."""
_LARGE_BYTES: Final = 2**14
"""A message above goes alone, so that no more than 8 MiB are copied to be parsed together."""


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

    def transaction_headers(self) -> list[dict[str, bytes]]:
        """Read the headers of transactions of each message, which has none usually."""
        found: list[dict[str, bytes]] = []
        for start in range(0, len(self.data), _AT_ONCE):
            part = self.data[start : start + _AT_ONCE]
            together = None if max(map(len, part)) > _LARGE_BYTES else transaction_headers(part)
            if together is None:
                together = [split_headers(WireMessage.FromString(each))[1] for each in part]
            found += together
        return found

    def subjects(self) -> list[str]:
        """Read the NATS subject on which each message arrived."""
        return [WireMessage.FromString(each).subject for each in self.data]

    def select(self, places: Sequence[int]) -> ColumnBatch:
        """Return the rows at these indexes, in that order."""
        return ColumnBatch(
            [self.offsets[place] for place in places],
            [self.keys[place] for place in places],
            [self.values[place] for place in places],
            [self.timestamps[place] for place in places],
            [self.data[place] for place in places],
        )


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
