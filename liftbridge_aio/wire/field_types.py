"""Checks that the fields of a parsed message hold what their types say.

betterproto2 does not compare the wire type of a field with its declared type: a number where bytes
belong becomes an `int` in a field of `bytes`. Stored in a log, it would break every reader; in a
reply, it would fail where the value is used, far from here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from types import UnionType
from typing import Any, Final, TypeAlias, get_args, get_origin, get_type_hints

_Check: TypeAlias = Callable[[Any], bool]

_CHECKS: Final[dict[type[Any], tuple[tuple[str, _Check], ...]]] = {}  # by type, made when needed


def wrong_field(message: Any) -> str | None:
    """Return the name of a field that holds a value of another type than its own, or None."""
    kind = type(message)
    checks = _CHECKS.get(kind)
    if checks is None:
        checks = _CHECKS[kind] = _checks(kind)
    for name, fits in checks:
        if not fits(getattr(message, name)):
            return name
    return None


def _checks(message_type: type[Any]) -> tuple[tuple[str, _Check], ...]:
    hints = get_type_hints(message_type)
    return tuple(
        (field.name, _check_of(hints[field.name])) for field in dataclasses.fields(message_type)
    )


def _check_of(hint: Any) -> _Check:
    origin, inner = get_origin(hint), [_check_of(one) for one in get_args(hint)]
    if origin is UnionType:
        return lambda value: any(fits(value) for fits in inner)
    if origin is list:
        [fits_item] = inner
        return lambda value: isinstance(value, list) and all(map(fits_item, value))
    if origin is dict:
        fits_key, fits_value = inner
        # An entry without a value is good for an empty message; betterproto2 makes it None.
        none_fits = _is_message(get_args(hint)[1])
        return lambda value: (
            all(map(fits_key, value))
            and all(fits_value(one) or (one is None and none_fits) for one in value.values())
        )
    if _is_message(hint):
        return lambda value: isinstance(value, hint) and wrong_field(value) is None
    return lambda value: isinstance(value, hint)


def _is_message(hint: Any) -> bool:
    return isinstance(hint, type) and dataclasses.is_dataclass(hint)
