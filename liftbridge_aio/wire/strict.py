"""Parsing of flat protobuf messages that trusts nothing.

betterproto2 reads what it can: a field that is cut off becomes a shorter value, and a field of the
wrong wire type a value of the wrong Python type. That will do where gRPC guards the frame. Bytes
from elsewhere are walked through first, and whatever does not fit is refused.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import cache
from typing import Final, TypeVar

import betterproto2

from liftbridge_aio.errors import MalformedData

MessageT = TypeVar("MessageT", bound=betterproto2.Message)

Shape = dict[int, "FieldShape"]
"""Expected type of each field, by number."""

_VARINT: Final = 0
_LENGTH_DELIMITED: Final = 2
_FIXED_LENGTHS: Final = {1: 8, 5: 4}  # wire type to bytes
_MAX_VARINT_BYTES: Final = 10


@dataclasses.dataclass(frozen=True, slots=True)
class FieldShape:
    """Expected type of one field."""

    wire_type: int
    entry: Mapping[int, FieldShape] | None = None
    """For maps: what is expected inside an entry."""


def parse_flat(message_type: type[MessageT], data: bytes) -> MessageT:
    """Parse a message whose fields are scalars, or maps of scalars.

    Unknown fields are skipped, as protobuf demands.

    Raises:
        MalformedData: `data` is cut off, has a field of another wire type than its number calls
            for, or text that is not UTF-8.
    """
    _walk(data, _shape(message_type))
    try:
        return message_type.parse(data)
    except UnicodeDecodeError as error:
        raise MalformedData(f"a text field is not UTF-8: {error.reason}") from error


def is_cut_off(data: bytes) -> bool:
    """Return True if the last field of a message of any type is truncated.

    Nested fields are not checked.
    """
    try:
        _walk(data, {})
    except _CutOff:
        return True
    except MalformedData:  # something else comes first, which a parser may name better
        return False
    return False


class _CutOff(MalformedData):
    """The data ends before a field does."""


@cache
def _shape(message_type: type[betterproto2.Message]) -> Shape:
    shapes: Shape = {}
    for field in dataclasses.fields(message_type):  # type: ignore[arg-type]  # the base is none yet
        meta: betterproto2.FieldMetadata = field.metadata["betterproto"]
        entry = meta.map_meta and {part.number: _scalar_shape(part) for part in meta.map_meta}
        shapes[meta.number] = FieldShape(_LENGTH_DELIMITED, entry) if entry else _scalar_shape(meta)
    return shapes


def _scalar_shape(meta: betterproto2.FieldMetadata) -> FieldShape:
    if meta.proto_type in betterproto2.WIRE_VARINT_TYPES and not meta.repeated:
        return FieldShape(_VARINT)
    if meta.proto_type in {betterproto2.TYPE_STRING, betterproto2.TYPE_BYTES}:
        return FieldShape(_LENGTH_DELIMITED)
    raise TypeError(f"not a flat message: field {meta.number} is of type {meta.proto_type}")


def _walk(data: bytes, shapes: Mapping[int, FieldShape]) -> None:
    position = 0
    while position < len(data):
        tag, position = _read_varint(data, position)
        number, wire_type = tag >> 3, tag & 0b111
        expected = shapes.get(number)
        if number == 0 or (expected is not None and expected.wire_type != wire_type):
            raise MalformedData(f"field {number} has wire type {wire_type}")
        start, position = _skip_value(data, position, wire_type)
        if expected is not None and expected.entry is not None:
            _walk(data[start:position], expected.entry)


def _skip_value(data: bytes, position: int, wire_type: int) -> tuple[int, int]:
    """Find where the content of a value begins and ends."""
    if wire_type == _VARINT:
        _, end = _read_varint(data, position)
    elif wire_type == _LENGTH_DELIMITED:
        length, position = _read_varint(data, position)
        end = position + length
    elif wire_type in _FIXED_LENGTHS:
        end = position + _FIXED_LENGTHS[wire_type]
    else:
        raise MalformedData(f"unknown wire type {wire_type}")
    if end > len(data):
        raise _CutOff(f"a field is cut off: {end - len(data)} bytes are missing")
    return position, end


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    if position < len(data) and data[position] < 0x80:  # nearly always
        return data[position], position + 1
    value = 0
    for index, byte in enumerate(data[position : position + _MAX_VARINT_BYTES]):
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80 and value < 2**64:
            return value, position + index + 1
    if len(data) - position < _MAX_VARINT_BYTES:
        raise _CutOff("a number is cut off")
    raise MalformedData("a number is longer than 64 bits")
