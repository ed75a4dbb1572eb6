"""Many messages read by one parse, a column for each field.

protobuf messages that stand one after another are one message: a field that may be repeated then
holds the values of all of them. So each field comes out of C as one list, which costs about half of
asking every message for every field.

What a column cannot tell is which message a value came from. Between two messages stands a
separator, therefore: a message that no server sends, with a value for each field that differs from
message to message. A column is taken only if its separators stand at every second place; a message
that lacks such a field, has it twice, or is cut off, moves them. Fields that are the same all along
a batch have no separator: each message has them once, or none has. Whatever does not look like this
is not for columns, and is read message by message.

Acks have no separators at all, which makes reading them a third cheaper: each says every field
that is read, but for an offset of 0. They are counted, and an ack can only settle a message
whose correlation id it bears.

What stays possible: a field without separators given twice by one message and left out by another
is taken for one of each; and a number in the packed form, which protobuf reads in repeated fields
only, is taken for a number. No server writes either.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from liftbridge_aio.model import (
    ACK_HEADER,
    UUID_HEADER,
    AckRow,
    MessageRow,
)

from .hot_schema import (
    PARSE_ERRORS,
    MessageColumns,
    PublishResponseColumns,
    WireMessage,
)

T = TypeVar("T")

MIN_MESSAGES: Final = 24
"""From how many on columns are faster than messages one by one."""

NO_NUMBER: Final = -(2**63) + 0x5EBA4A
NO_BYTES: Final = b"\x00separator"

NO_HEADER: Final = "\0separator"

_SEPARATOR: Final[Any] = WireMessage(
    offset=NO_NUMBER, key=NO_BYTES, value=NO_BYTES, timestamp=NO_NUMBER
)
MESSAGE_SEPARATOR: Final[bytes] = _SEPARATOR.SerializeToString()
_SEPARATOR.headers.add(name=NO_HEADER)
_WITH_HEADER: Final[bytes] = _SEPARATOR.SerializeToString()

Mark: TypeAlias = bytes | None
"""The mark of transactions on a message: the UUID of its producer's message, nothing at all,
or `ACK_MARK`."""
ACK_MARK: Final = b""
"""The mark of a message whose headers say more: an ack."""

_UUID: Final = re.compile(
    re.escape(
        WireMessage(headers=[{"name": UUID_HEADER, "content": bytes(16)}]).SerializeToString()[:-16]
    )
    + b"(.{16})",
    re.DOTALL,
)


def message_rows(datas: Sequence[bytes]) -> Iterator[MessageRow] | None:
    """Read the fields of many Messages; the headers stay the bytes of the whole message.

    Returns:
        None if they have to be read one by one: they differ too much, or one is broken.
    """
    try:
        return _rows(MessageColumns.FromString(MESSAGE_SEPARATOR.join(datas)), datas)
    except (*PARSE_ERRORS, UnevenColumns):
        return None


class MarkedColumns(NamedTuple):
    """The columns that a committed reading needs of many Messages, and the source of the rest."""

    offsets: list[int]
    timestamps: list[int]
    marks: list[Mark] | None
    """None if no message has a mark."""
    columns: Any

    def rows(self, datas: Sequence[bytes]) -> Iterator[MessageRow] | None:
        """Do as `message_rows`, without reading them again."""
        try:
            return _rows(self.columns, datas)
        except UnevenColumns:
            return None


def marked_columns(datas: Sequence[bytes]) -> MarkedColumns | None:
    """Read places and marks of many Messages; None if they have to be read one by one."""
    try:
        joined = _WITH_HEADER.join(datas)
        columns = MessageColumns.FromString(joined)
        count = len(datas)
        return MarkedColumns(
            separated(columns.offset, NO_NUMBER, count),
            separated(columns.timestamp, NO_NUMBER, count),
            _marks(columns.headers.name[:], joined, count),
            columns,
        )
    except (*PARSE_ERRORS, UnevenColumns):
        return None


def _rows(columns: Any, datas: Sequence[bytes]) -> Iterator[MessageRow]:
    count = len(datas)
    return zip(
        _constant(columns.stream, count, ""),
        _constant(columns.partition, count, 0),
        separated(columns.offset, NO_NUMBER, count),
        separated_or_absent(columns.key, NO_BYTES, count),
        separated_or_absent(columns.value, NO_BYTES, count),
        separated(columns.timestamp, NO_NUMBER, count),
        datas,
        _constant(columns.subject, count, ""),
        _constant(columns.reply_subject, count, ""),
        strict=True,
    )


def _marks(names: list[str], joined: bytes, count: int) -> list[Mark] | None:
    """Find the marks of joined messages, which have headers of these names.

    A column of contents would not do: empty ones are left out on the wire. There are as many places
    that look like the header of a UUID as there are such headers, so these are the headers.
    """
    with_uuid, acks = names.count(UUID_HEADER), ACK_HEADER in names
    if not with_uuid and not acks:
        return None
    marks: list[Mark] = _UUID.findall(joined)
    if len(marks) != with_uuid:
        raise UnevenColumns
    if with_uuid == count and not acks:
        return marks
    uuids = iter(marks)
    marks, mark = [], None
    for name in names:
        if name == NO_HEADER:
            marks.append(mark)
            mark = None
        elif name == UUID_HEADER:
            mark = next(uuids)
        elif name == ACK_HEADER:
            mark = ACK_MARK
    marks.append(mark)
    if len(marks) != count:
        raise UnevenColumns
    return marks


def ack_rows(datas: Sequence[bytes]) -> Iterator[AckRow] | None:
    """Read the fields that every ack needs from many PublishResponses without refusals.

    The rest stays in the bytes of each, of which the parse has shown that they can be read.

    Returns:
        None if they have to be read one by one: one of them is an error or a refusal, they differ
        too much, or one is broken.
    """
    count = len(datas)
    try:
        response = PublishResponseColumns.FromString(b"".join(datas))
        if response.HasField("async_error"):
            return None
        columns = response.ack
        if columns.ack_error:
            return None
        streams, offsets = columns.stream[:], columns.offset[:]
        correlation_ids = columns.correlation_id[:]
        even = len(streams) == len(offsets) == len(correlation_ids) == count
        if not even or not all(correlation_ids):
            return None
        return zip(streams, offsets, correlation_ids, datas, strict=True)
    except PARSE_ERRORS:
        return None


class UnevenColumns(Exception):
    """The values of a column cannot be given to the messages one by one."""


def separated(column: Any, separator: T, count: int) -> list[T]:
    """Take the values of `count` messages out of a column with separators.

    Raises:
        UnevenColumns: there is not one for each.
    """
    entries: list[T] = column[:]
    if len(entries) != 2 * count - 1 or entries[1::2] != [separator] * (count - 1):
        raise UnevenColumns
    return entries[::2]


def separated_or_absent(column: Any, separator: bytes, count: int) -> Iterable[bytes]:
    """Do as `separated`, where no message may have one too."""
    if len(column) == count - 1 and column == [separator] * (count - 1):
        return repeat(b"", count)
    return separated(column, separator, count)


def _constant(column: Any, count: int, absent: T) -> Iterable[T]:
    if not column:
        return repeat(absent, count)
    first: T = column[0]
    if column != [first] * count:
        raise UnevenColumns
    return repeat(first, count)
