"""How commands speak: JSON or plain lines on stdout, words for people on stderr."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Iterable, Mapping
from typing import Any, Final

from liftbridge_aio.model import datetime_from_ns

_BYTES: Final = (*range(32), 127, *range(0x80, 0xA0))
"""Control characters of ASCII and Latin-1."""
_SEPARATORS: Final = (0x2028, 0x2029)
_DIRECTIONS: Final = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
"""What makes a terminal show text in another order than it has."""
_INVISIBLE: Final = (0x200B, *range(0x2060, 0x2065), *range(0x206A, 0x2070), 0xFEFF)
"""What takes no room and means nothing; joiners, which letters and emoji need, are left alone."""

_CONTROL: Final = (
    {code: f"\\x{code:02x}" for code in _BYTES}
    | {code: f"\\u{code:04x}" for code in (*_SEPARATORS, *_DIRECTIONS, *_INVISIBLE)}
    | {ord("\n"): "\\n", ord("\r"): "\\r", ord("\t"): "\\t"}
)

_WIDE: Final = 1000
"""Columns of a table that goes to a file or a program: nothing is cut off there."""


def say(text: str) -> None:
    """Tell the person at the terminal something."""
    print(text, file=sys.stderr, flush=True)  # noqa: T201 (this is where it is printed)


def write_line(text: str) -> None:
    """Write a line to stdout at once: whoever reads it may be waiting for it.

    Raises:
        BrokenPipeError: nobody reads any more.
    """
    print(text, flush=True)  # noqa: T201 (this is where it is printed)


def write_json(value: object) -> None:
    """Write a value to stdout as one line of JSON.

    Raises:
        BrokenPipeError: nobody reads any more.
    """
    write_line(json_line(value))


def json_line(value: object) -> str:
    """Make one line of JSON of a value."""
    return json.dumps(value, ensure_ascii=False)


def write_lines(lines: Iterable[str]) -> None:
    """Write lines to stdout and flush once.

    Raises:
        BrokenPipeError: nobody reads any more.
    """
    text = "\n".join(lines)
    if text:
        write_line(text)


def write_table(title: str, columns: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> None:
    """Write a table to stdout.

    Raises:
        BrokenPipeError: nobody reads any more.
    """
    from .console import Console, Table  # noqa: PLC0415 (help must not wait for it)

    write_line(one_line(title))
    table = Table()
    for column in columns:
        table.add_column(column)
    for row in rows:
        table.add_row(*(one_line(str(cell)) for cell in row))
    width = None if sys.stdout.isatty() else _WIDE
    Console(markup=False, emoji=False, highlight=False, width=width).print(table)


def shown(value: object) -> str:
    """Show a value in a table; None is what nobody knows."""
    return "?" if value is None else str(value)


def moment(timestamp: int | None) -> str:
    """Show Unix nanoseconds as a time in UTC, to the second; nothing where there is none."""
    if timestamp is None:
        return ""
    return datetime_from_ns(timestamp).isoformat(timespec="seconds")


def one_line(text: str) -> str:
    """Escape control characters: a value must not break lines, steer the terminal or fool it."""
    return text.translate(_CONTROL)


def readable(data: bytes) -> str:
    """Show bytes on one line; what is no UTF-8 is escaped."""
    return one_line(data.decode("utf-8", "backslashreplace"))


def json_bytes(name: str, data: bytes) -> dict[str, str]:
    """Put bytes into JSON: as `name` where they are UTF-8, else as `name_base64`."""
    try:
        return {name: data.decode("utf-8")}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode("ascii")}


def json_headers(headers: Mapping[str, bytes]) -> dict[str, Any]:
    """Put headers into JSON; those that are no UTF-8 stand in `headers_base64`."""
    plain: dict[str, str] = {}
    encoded: dict[str, str] = {}
    for name, data in headers.items():
        shown = json_bytes("value", data)
        if "value" in shown:
            plain[name] = shown["value"]
        else:
            encoded[name] = shown["value_base64"]
    return {"headers": plain, "headers_base64": encoded} if encoded else {"headers": plain}
