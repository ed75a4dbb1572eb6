"""Serialisation of values: the protocol, and the serialisers that come with the package."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
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
        message = f"{text} is beyond what a float can hold"
        raise ValueError(message)
    return number


def _refuse_constant(name: str) -> NoReturn:
    text = f"JSON has no {name}"
    raise ValueError(text)


class PydanticSerializer(Generic[T]):
    """A pydantic model, or any other type that pydantic can validate, as JSON.

    Names are written by alias, as pydantic reads them; computed fields are not written. Needs the
    extra `pydantic`.

    Args:
        kind: the model, or for example `list[Model]`.

    Raises:
        ImportError: pydantic 2 is not installed.
    """

    def __init__(self, kind: type[T]) -> None:
        try:
            from pydantic import TypeAdapter  # noqa: PLC0415 - an extra
        except ImportError as error:
            text = "PydanticSerializer needs pydantic 2: pip install 'liftbridge-aio[pydantic]'"
            raise ImportError(text) from error
        self._kind = kind
        self._adapter = TypeAdapter(kind)

    def __repr__(self) -> str:
        return f"PydanticSerializer({_name(self._kind)})"

    def serialize(self, value: T, /) -> bytes:
        """Encode a value as JSON.

        Raises:
            ValueError: the value is not of this type.
        """
        return self._adapter.dump_json(value, by_alias=True, round_trip=True, warnings="error")

    def deserialize(self, data: bytes, /) -> T:
        """Decode and validate JSON.

        Raises:
            ValueError: pydantic's `ValidationError`.
        """
        return self._adapter.validate_json(data)


class MsgspecSerializer(Generic[T]):
    """A msgspec `Struct`, or any other type that msgspec knows, as JSON or MessagePack.

    What is read is validated; what is written is not. Needs the extra `msgspec`.

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
            text = "MsgspecSerializer needs msgspec: pip install 'liftbridge-aio[msgspec]'"
            raise ImportError(text) from error
        formats: dict[str, Any] = {"json": msgspec.json, "msgpack": msgspec.msgpack}
        if encoding not in formats:
            text = f"msgspec writes 'json' and 'msgpack' here, not {encoding!r}"
            raise InvalidRequest(text)
        self._kind = kind
        self._encoding = encoding
        self._encode: Callable[[T], bytes] = formats[encoding].Encoder().encode
        self._decode: Callable[[bytes], T] = formats[encoding].Decoder(kind).decode

    def __repr__(self) -> str:
        return f"MsgspecSerializer({_name(self._kind)}, {self._encoding!r})"

    def serialize(self, value: T, /) -> bytes:
        """Encode a value.

        Raises:
            TypeError: msgspec cannot write such a value.
        """
        return self._encode(value)

    def deserialize(self, data: bytes, /) -> T:
        """Decode and validate a value.

        Raises:
            ValueError: msgspec's `DecodeError` or `ValidationError`.
        """
        return self._decode(data)


def _name(kind: Any) -> str:
    return kind.__name__ if type(kind) is type or not hasattr(kind, "__origin__") else str(kind)


BYTES: Final = BytesSerializer()
"""Bytes as they are; the default."""

JSON: Final = JsonSerializer()
"""Whatever JSON can hold."""
