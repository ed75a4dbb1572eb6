"""Serialisation of values: the protocol, and the serialisers that come with the package.

All of them refuse NaN and infinities: JSON has none, and libraries write null in their place.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final, Generic, Literal, NoReturn, Protocol, TypeVar

from ._core.arguments import check_bytes
from .errors import InvalidRequest

T = TypeVar("T")


class Serializer(Protocol[T]):
    """Turns values of one type into bytes and back.

    Both methods are called on the event loop, once per message, so they must be quick and keep no
    state. An exception that `deserialize` raises means that the bytes are no such value; one that
    `serialize` raises, that the value cannot be published.
    """

    def serialize(self, value: T, /) -> bytes:
        """Return the bytes of a value."""
        ...

    def deserialize(self, data: bytes, /) -> T:
        """Return the value of these bytes."""
        ...


class BytesSerializer:
    """Leaves bytes as they are."""

    def __repr__(self) -> str:
        return "BYTES"

    def serialize(self, value: bytes, /) -> bytes:
        """Return the bytes.

        Raises:
            WrongType: it is something else.
        """
        check_bytes(value, "a value")
        return value

    def deserialize(self, data: bytes, /) -> bytes:
        """Return the bytes."""
        return data


class JsonSerializer:
    """JSON as the standard library reads and writes it: RFC 8259, UTF-8, compact.

    NaN and infinities are no JSON, in neither direction.
    """

    def __repr__(self) -> str:
        return "JSON"

    def serialize(self, value: Any, /) -> bytes:
        """Encode a value as JSON.

        Raises:
            TypeError: JSON has no such value.
            ValueError: the same, for a number or for text that UTF-8 cannot hold.
        """
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return text.encode()

    def deserialize(self, data: bytes, /) -> Any:
        """Decode JSON.

        Raises:
            ValueError: it is none.
        """
        return json.loads(data.decode(), parse_constant=_refuse_constant, parse_float=_finite)


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text} is beyond what a float can hold")
    return number


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"JSON has no {name}")


class PydanticSerializer(Generic[T]):
    """A pydantic model, or any other type that pydantic can validate, as JSON.

    Names are written by alias, as pydantic reads them; computed fields are not written. NaN and
    infinities are refused, whatever the model's `ser_json_inf_nan` is. Needs the extra `pydantic`.

    Args:
        kind: the model, or for example `list[Model]`.

    Raises:
        ImportError: pydantic 2 is not installed.
    """

    def __init__(self, kind: type[T]) -> None:
        try:
            from pydantic import TypeAdapter  # noqa: PLC0415 - an extra
        except ImportError as error:
            raise ImportError(
                "PydanticSerializer needs pydantic 2: pip install 'liftbridge-aio[pydantic]'"
            ) from error
        self._kind = kind
        self._adapter = TypeAdapter(kind)

    def __repr__(self) -> str:
        return f"PydanticSerializer({_name(self._kind)})"

    def serialize(self, value: T, /) -> bytes:
        """Encode a value as JSON.

        Raises:
            ValueError: the value is not of this type, or has a number that JSON does not have.
        """
        data = self._adapter.dump_json(value, by_alias=True, round_trip=True, warnings="error")
        if _MAYBE_WRITTEN.search(data):
            _check_finite(self._adapter.dump_python(value, round_trip=True))
        return data

    def deserialize(self, data: bytes, /) -> T:
        """Decode and validate JSON.

        Raises:
            ValueError: pydantic's `ValidationError`, or a number is beyond what a float can hold.
        """
        value = self._adapter.validate_json(data)
        if _MAYBE_READ.search(data):
            _check_finite(self._adapter.dump_python(value, round_trip=True))
        return value


class MsgspecSerializer(Generic[T]):
    """A msgspec `Struct`, or any other type that msgspec knows, as JSON or MessagePack.

    What is read is validated; what is written is not, but that NaN and infinities are refused, with
    both encodings. Needs the extra `msgspec`.

    Args:
        kind: the type.
        encoding: "json" or "msgpack".

    Raises:
        ImportError: msgspec is not installed.
        InvalidRequest: there is no such encoding.
    """

    def __init__(self, kind: type[T], encoding: Literal["json", "msgpack"] = "json") -> None:
        try:
            import msgspec  # noqa: PLC0415 - an extra
        except ImportError as error:
            raise ImportError(
                "MsgspecSerializer needs msgspec: pip install 'liftbridge-aio[msgspec]'"
            ) from error
        formats: dict[str, Any] = {"json": msgspec.json, "msgpack": msgspec.msgpack}
        if encoding not in formats:
            raise InvalidRequest(f"msgspec writes 'json' and 'msgpack' here, not {encoding!r}")
        self._kind = kind
        self._encoding = encoding
        self._encode: Callable[[T], bytes] = formats[encoding].Encoder().encode
        self._maybe_written = _MAYBE_PACKED if encoding == "msgpack" else _MAYBE_WRITTEN
        self._to_builtins: Callable[[T], Any] = msgspec.to_builtins
        self._decode: Callable[[bytes], T] = formats[encoding].Decoder(kind).decode

    def __repr__(self) -> str:
        return f"MsgspecSerializer({_name(self._kind)}, {self._encoding!r})"

    def serialize(self, value: T, /) -> bytes:
        """Encode a value.

        Raises:
            TypeError: msgspec cannot write such a value.
            ValueError: the value has NaN or an infinity.
        """
        data = self._encode(value)
        if self._maybe_written.search(data):
            _check_finite(self._to_builtins(value))
        return data

    def deserialize(self, data: bytes, /) -> T:
        """Decode and validate a value.

        Raises:
            ValueError: msgspec's `DecodeError` or `ValidationError`.
        """
        return self._decode(data)


_MAYBE_WRITTEN: Final = re.compile(rb'null|NaN|Infinity|"-?(?:nan|inf)"')
"""What libraries write for NaN and infinities: in most messages, nothing that this matches."""
_MAYBE_PACKED: Final = re.compile(rb"\xcb[\x7f\xff][\xf0-\xff]")
"""The same in MessagePack: a float whose exponent has all bits set."""
_MAYBE_READ: Final = re.compile(rb"NaN|Infinity|[eE]\+?[0-9]{3}|[0-9]{309}")
"""What pydantic reads as NaN or an infinity."""


def _check_finite(value: Any) -> None:
    """Refuse NaN and infinities in a value of dicts and sequences.

    Raises:
        ValueError: there is one.
    """
    waiting = [value]
    while waiting:
        found = waiting.pop()
        if isinstance(found, float | Decimal):
            if not math.isfinite(found):
                raise ValueError(
                    f"JSON has no {found}, and neither do messages: use None, or a text"
                )
        elif isinstance(found, Mapping):
            waiting += (*found, *found.values())
        elif isinstance(found, list | tuple | set | frozenset):
            waiting += found


def _name(kind: Any) -> str:
    return kind.__name__ if type(kind) is type or not hasattr(kind, "__origin__") else str(kind)


BYTES: Final = BytesSerializer()
"""Bytes as they are; the default."""

JSON: Final = JsonSerializer()
"""Whatever JSON can hold."""
