"""Records of logs: JSON that others may have written, as dataclasses of checked types. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import is_dataclass
from functools import cache
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from .parsing import parse_json

_Record = TypeVar("_Record")


def decode_record(kind: type[_Record], value: bytes) -> _Record:
    """Return the record that a message holds.

    Args:
        kind: a dataclass. Its fields are text, numbers, truth values, named tuples (lists in JSON),
            tuples of any length, mappings, and unions of these with None.
        value: a JSON object with some of the fields.

    Raises:
        ValueError: it is no such record.
    """
    try:
        record: _Record = _decoded(kind, parse_json(value))
    except (KeyError, TypeError) as error:
        raise ValueError(f"not a {kind.__name__}: {error}") from None
    return record


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _decoded(kind: Any, value: Any) -> Any:
    """Return a value of a type.

    Raises:
        KeyError, TypeError: it is of another type.
    """
    origin = get_origin(kind)
    if origin is UnionType:
        [kind] = [each for each in get_args(kind) if each is not type(None)]
        return None if value is None else _decoded(kind, value)
    if origin is tuple:
        return tuple(_decoded(get_args(kind)[0], each) for each in _checked(value, list))
    if origin is Mapping:
        fields = _checked(value, dict)
        return {name: _decoded(get_args(kind)[1], each) for name, each in fields.items()}
    if is_dataclass(kind):
        make: Any = kind
        fields = _checked(value, dict)
        return make(**{name: _decoded(_hints(make)[name], each) for name, each in fields.items()})
    if issubclass(kind, tuple):
        parts = zip(_hints(kind).values(), _checked(value, list), strict=True)
        return kind(*(_decoded(*part) for part in parts))
    return _checked(value, (int, float) if kind is float else kind)


def _checked(value: Any, kind: Any) -> Any:
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise TypeError(f"{value!r:.100} is of another type")
    return value
