"""Checks of single arguments, shared by all calls. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from liftbridge_aio.errors import InvalidRequest, WrongType

INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1


@contextmanager
def about(stream: object, partition: object = None) -> Iterator[None]:
    """Add stream and partition to every `InvalidRequest` that is raised inside."""
    try:
        yield
    except InvalidRequest as error:
        if isinstance(partition, bool) or not isinstance(partition, int):
            partition = None
        error.at(stream if stream and isinstance(stream, str) else None, partition)
        raise


def check_whole_number(value: Any, name: str, low: int, high: int) -> None:
    """Refuse a value that is not a whole number from `low` to `high`.

    Raises:
        WrongType: it is not a whole number; True and False are not, either.
        InvalidRequest: it is out of range.
    """
    check_integer(value, name)
    if not low <= value <= high:
        raise InvalidRequest(f"{name} must be from {low} to {high}, not {value}")


def check_integer(value: object, name: str) -> None:
    """Refuse a value that is not a whole number.

    Raises:
        WrongType: it is not; True and False are not, either.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise WrongType(f"{name} must be a whole number, not {value!r}")


def check_number(value: object, name: str) -> None:
    """Refuse a value that is not a number.

    Raises:
        WrongType: it is not; True and False are not, either.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise WrongType(f"{name} must be a number, not {value!r}")


def check_type(value: object, kind: type | tuple[type, ...], text: str) -> None:
    """Refuse a value that is not an instance of `kind`.

    Raises:
        WrongType: with `text` and the value.
    """
    if not isinstance(value, kind):
        raise WrongType(f"{text}, not {value!r}")


def several(values: object, text: str) -> list[Any]:
    """Return the values of a list or of another iterable.

    Raises:
        WrongType: with `text` and the value, if it is no iterable, or one that is not meant as a
            list of its elements: text, bytes or a mapping.
    """
    if isinstance(values, _NOT_SEVERAL) or not isinstance(values, Iterable):
        raise WrongType(f"{text}, not {values!r}")
    return list(values)


_NOT_SEVERAL: Final = str, bytes, bytearray, memoryview, Mapping


def partition_numbers(partitions: object) -> list[int]:
    """Return the numbers of partitions, which come as a list or as another iterable.

    Raises:
        WrongType: they do not, or one is no whole number.
        InvalidRequest: one is out of range.
    """
    numbers = several(partitions, "partitions are given as a list of whole numbers")
    for number in numbers:
        check_partition(number)
    return numbers


def check_partition(partition: object) -> None:
    """Refuse what is no number of a partition.

    Raises:
        WrongType: it is no whole number.
        InvalidRequest: it is out of range.
    """
    with about(None, partition):
        check_whole_number(partition, "a partition", 0, INT32_MAX)


def names(values: object, name: str) -> list[str]:
    """Return names, which come as a list or as another iterable of strings.

    Raises:
        WrongType: they do not; `name` says what each is.
        InvalidRequest: one cannot be written as UTF-8.
    """
    found = several(values, "names are given as a list of strings")
    for each in found:
        check_text(each, name)
    return found


def check_flags(**flags: object) -> None:
    """Refuse flags that are neither True nor False; errors name them.

    Raises:
        WrongType: one is something else.
    """
    for name, value in flags.items():
        check_type(value, bool, f"{name} must be True or False")


def check_callable(value: object, name: str) -> None:
    """Refuse a value that is not callable.

    Raises:
        WrongType: it is not callable.
    """
    if not callable(value):
        raise WrongType(f"{name} must be callable, not {value!r}")


def check_bytes(value: object, name: str) -> None:
    """Refuse a value that is not bytes.

    Raises:
        WrongType: it is something else.
    """
    if not isinstance(value, bytes):
        raise WrongType(f"{name} must be bytes, not {type(value).__name__}; encode it first")


def check_text(value: object, name: str) -> None:
    """Refuse a value that is not a string that can be encoded as UTF-8.

    Raises:
        WrongType: it is something else.
        InvalidRequest: it contains a lone surrogate.
    """
    if not isinstance(value, str):
        raise WrongType(f"{name} must be a string, not {value!r}")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise InvalidRequest(
                f"{name} cannot be encoded as UTF-8: {error.reason} in {value!r}"
            ) from None


def check_optional_text(value: Any, name: str) -> None:
    """Refuse what is neither None nor a string that can be written as UTF-8.

    Raises:
        WrongType: it is something else.
        InvalidRequest: it holds half a character (a lone surrogate).
    """
    if value is not None:
        check_text(value, name)
