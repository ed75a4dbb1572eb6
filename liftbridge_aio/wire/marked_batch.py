"""Messages with what transactions have marked them with, decoded no further than they must be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from liftbridge_aio.errors import MalformedData
from liftbridge_aio.model import ACK_HEADER, UUID_HEADER, Message

from .codec import MAX_KEPT_BYTES, decode_message, decode_messages, read_headers
from .columns import ACK_MARK, MIN_MESSAGES, Mark, MarkedColumns, marked_columns

_MARK: Final = b"txn-"
"""In the names of all headers of transactions."""


@dataclass(slots=True)
class MarkedBatch:
    """Places and marks of messages, in order."""

    offsets: list[int]
    timestamps: list[int]
    data: list[bytes]
    """The encoded messages."""
    marks: list[Mark] | None
    """None if no message has one."""
    _columns: MarkedColumns | None = None

    def messages(self) -> list[Message]:
        """Decode all of them."""
        rows = None if self._columns is None else self._columns.rows(self.data)
        return decode_messages(self.data) if rows is None else Message.received(rows, read_headers)

    def select(self, places: Sequence[int]) -> MarkedBatch:
        """Return the messages at these indexes, in that order."""
        marks = self.marks
        return MarkedBatch(
            [self.offsets[place] for place in places],
            [self.timestamps[place] for place in places],
            [self.data[place] for place in places],
            None if marks is None else [marks[place] for place in places],
        )


def read_marked(datas: list[bytes]) -> tuple[MarkedBatch, MalformedData | None]:
    """Read places and marks of messages, up to the first that is malformed.

    Returns:
        What was read, and the error of the one where it ended.
    """
    if len(datas) >= MIN_MESSAGES and max(map(len, datas)) <= MAX_KEPT_BYTES:
        columns = marked_columns(datas)
        if columns is not None:
            places = columns.offsets, columns.timestamps
            return MarkedBatch(*places, datas, columns.marks, columns), None
    read = MarkedBatch([], [], [], None)
    marks: list[Mark] = []
    for data in datas:
        try:
            message = decode_message(data)
        except MalformedData as error:
            return read, error
        mark = _mark(message.transaction_headers) if _MARK in data else None
        marks.append(mark)
        if mark is not None:
            read.marks = marks
        read.offsets.append(message.offset)
        read.timestamps.append(message.timestamp)
        read.data.append(data)
    return read, None


def _mark(headers: Mapping[str, bytes]) -> Mark:
    return ACK_MARK if ACK_HEADER in headers else headers.get(UUID_HEADER)
