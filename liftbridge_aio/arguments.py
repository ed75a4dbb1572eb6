"""Checks of single arguments that every call shares. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from .errors import InvalidRequest, WrongType

INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1


@contextmanager
def about(stream: object, partition: object = None) -> Iterator[None]:
    """Let refusals that are raised inside name the stream and partition, if they are any."""
    try:
        yield
    except InvalidRequest as error:
        error.at(
            stream if stream and isinstance(stream, str) else None,
            partition if isinstance(partition, int) else None,
        )
        raise


def check_whole_number(value: object, name: str, low: int, high: int) -> None:
    """Refuse what is no whole number from `low` to `high`.

    Raises:
        WrongType: it is no whole number; True and False are none either.
        InvalidRequest: it is out of range.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        text = f"{name} is a whole number, not {value!r}"
        raise WrongType(text)
    if not low <= value <= high:
        text = f"{name} must be from {low} to {high}, not {value}"
        raise InvalidRequest(text)


def check_type(value: object, kind: type | tuple[type, ...], text: str) -> None:
    """Refuse what is no instance of `kind`.

    Raises:
        WrongType: with `text` and the value.
    """
    if not isinstance(value, kind):
        message = f"{text}, not {value!r}"
        raise WrongType(message)


def check_callable(value: object, name: str) -> None:
    """Refuse what cannot be called.

    Raises:
        WrongType: it cannot.
    """
    if not callable(value):
        text = f"{name} is callable, {value!r} is not"
        raise WrongType(text)


def check_bytes(value: object, name: str) -> None:
    """Refuse what is not bytes.

    Raises:
        WrongType: it is something else.
    """
    if not isinstance(value, bytes):
        text = f"{name} is bytes, not {type(value).__name__}; encode it first"
        raise WrongType(text)


def check_text(value: object, name: str) -> None:
    """Refuse what is not a string that can be written as UTF-8.

    Raises:
        WrongType: it is something else.
        InvalidRequest: it holds half a character (a lone surrogate).
    """
    if not isinstance(value, str):
        text = f"{name} is a string, not {value!r}"
        raise WrongType(text)
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            text = f"{name} cannot be written as UTF-8: {error.reason} in {value!r}"
            raise InvalidRequest(text) from None
