"""Write output: JSON, lines or tables to stdout, messages for people to stderr."""

from __future__ import annotations

import base64
import json
import logging
import sys
from collections.abc import Iterable, Mapping
from io import TextIOWrapper
from typing import Any, Final, TextIO

from liftbridge_aio.errors import (
    ClientNotTrusted,
    ConnectionFailed,
    ConnectTimeout,
    LiftbridgeError,
    PartitionPaused,
    PartitionReadonly,
    PublishOutcomeUnknown,
    ServerNotTrusted,
    StreamExists,
    StreamNotFound,
    SubscriptionLost,
    TLSFailed,
)
from liftbridge_aio.model import datetime_from_ns

_BYTES: Final = (*range(32), 127, *range(0x80, 0xA0))
"""Control characters of ASCII and Latin-1."""
_SEPARATORS: Final = (0x2028, 0x2029)
_DIRECTIONS: Final = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
"""Characters that make a terminal show text in another order."""
_INVISIBLE: Final = (0x200B, *range(0x2060, 0x2065), *range(0x206A, 0x2070), 0xFEFF)
"""Invisible characters; joiners, which letters and emoji need, are not among them."""

_CONTROL: Final = (
    {code: f"\\x{code:02x}" for code in _BYTES}
    | {code: f"\\u{code:04x}" for code in (*_SEPARATORS, *_DIRECTIONS, *_INVISIBLE)}
    | {ord("\n"): "\\n", ord("\r"): "\\r", ord("\t"): "\\t"}
)

_CLOSED: Final = "stdout is closed; use >/dev/null to discard output"
_WIDE: Final = 1000
"""Width of a table for a file or a program, in which nothing is truncated."""


_HINTS: Final[dict[type[LiftbridgeError], str]] = {
    ServerNotTrusted: (
        "check the address, that --tls-ca has the authority that signed the server's certificate, "
        "the dates of both, and --tls-server-name if the certificate has another name than the "
        "address"
    ),
    ClientNotTrusted: (
        "give --tls-cert and --tls-key, signed by an authority in the server's tls.client.auth.ca, "
        "and check their dates"
    ),
    TLSFailed: "give --tls only if the servers use TLS, and check the files",
    StreamExists: "give --exist-ok to accept that",
    StreamNotFound: "`streams list` shows the existing ones",
    PartitionReadonly: "`streams readonly` with --off makes it writable",
    PartitionPaused: "publish to it, or use `streams resume`; `tail` also takes --unpause",
    PublishOutcomeUnknown: (
        "check if it is stored before you send it again, or use --expected-offset on streams with "
        "optimistic concurrency control, which makes a repeat harmless"
    ),
}
"""Advice that replaces that of the client, which is for Python programs."""
_NO_SERVER: Final = (
    "check that the servers run, and the addresses: --servers or LIFTBRIDGE_SERVERS name them;"
    " `liftbridge-aio broker` starts one to try things on"
)


def prepare_output() -> None:
    """Configure stdout to escape what its encoding lacks, and show warnings on stderr.

    Raises:
        OSError: stdout is closed.
    """
    output: TextIO | None = sys.stdout
    if output is None:
        raise OSError(_CLOSED)
    if isinstance(output, TextIOWrapper):
        output.reconfigure(errors="backslashreplace")
    logging.getLogger("liftbridge_aio").addHandler(_WARNINGS)  # added once


class _Warnings(logging.Handler):
    """Write warnings and errors of the library to stderr, one line each."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one.

        A server that cannot be used is the error of the command, or another one is used.
        """
        if record.name == "liftbridge_aio.net" and record.levelno < logging.ERROR:
            return
        say(f"{record.levelname.lower()}: {one_line(record.getMessage())}")


_WARNINGS: Final = _Warnings(logging.WARNING)


def say(text: str) -> None:
    """Write a message for people to stderr."""
    if sys.stderr is None:
        return  # it is closed, and print would write to stdout
    print(text, file=sys.stderr, flush=True)  # noqa: T201 (this is where it is printed)


def ask(question: str) -> None:
    """Write a question to stderr, whose answer goes on the same line."""
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)  # noqa: T201


def failure_line(error: Exception) -> str:
    """Return one line with the error and advice."""
    if isinstance(error, LiftbridgeError):
        error.hint = _hint(error)
    return one_line(" ".join(str(error).split())) or type(error).__name__


def _hint(error: LiftbridgeError) -> str:
    if "hint" in vars(error):  # it is about this error, not about its kind
        return error.hint
    if isinstance(error, SubscriptionLost):
        offset = error.last_offset
        return "" if offset is None else f"continue at offset {offset + 1}"
    if type(error) in {ConnectionFailed, ConnectTimeout}:  # those of other systems are below it
        return _NO_SERVER
    for kind, hint in _HINTS.items():
        if isinstance(error, kind):
            return hint
    return error.hint


def write_line(text: str) -> None:
    """Write a line to stdout and flush it, as a reader may be waiting for it.

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
    """Return a value as one line of JSON, in ASCII unless stdout is UTF-8."""
    encoding = sys.stdout.encoding or ""
    return json.dumps(value, ensure_ascii=not encoding.lower().startswith("utf"))


def write_lines(lines: Iterable[str]) -> None:
    """Write lines to stdout and flush once.

    Raises:
        BrokenPipeError: nobody reads any more.
    """
    text = "\n".join(lines)
    if text:
        write_line(text)


def write_bytes(data: bytes) -> None:
    """Write bytes to stdout as they are and flush.

    Raises:
        BrokenPipeError: nobody reads any more.
    """
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def write_table(
    title: str,
    columns: tuple[str, ...],
    rows: Iterable[tuple[object, ...]],
    spare: tuple[str, ...] = (),
) -> None:
    """Write a table to stdout; if it is too wide for the terminal, a line per cell instead.

    Args:
        title: of the table.
        columns: the headings.
        rows: the cells.
        spare: headings of columns that a table that is too wide leaves out, in this order; a
            message on stderr names them.

    Raises:
        BrokenPipeError: nobody reads any more.
    """
    from .console import Console, Table  # noqa: PLC0415 (help must not wait for it)

    cells = [[one_line(str(cell)) for cell in row] for row in rows]
    width = None if sys.stdout.isatty() else _WIDE
    console = Console(markup=False, emoji=False, highlight=False, width=width)
    unbounded = console.options.update(width=_WIDE)
    write_line(one_line(title))
    for count in range(len(spare) + 1):
        kept = [number for number, name in enumerate(columns) if name not in spare[:count]]
        table = Table(*(columns[number] for number in kept))
        for row in cells:
            table.add_row(*(row[number] for number in kept))
        if console.measure(table, options=unbounded).maximum <= console.width:
            console.print(table)
            if count:
                left_out = ", ".join(spare[:count])
                say(f"columns left out, as the terminal is too narrow: {left_out}; --json has all")
            return
    heading = max(map(len, columns))
    for row in cells:
        lines = (f"{name:{heading}}  {cell}" for name, cell in zip(columns, row, strict=True))
        write_lines([*lines, ""])


def shown(value: object) -> str:
    """Return a value as tables show it; None is not known."""
    return "?" if value is None else str(value)


def moment(timestamp: int | None) -> str:
    """Return Unix nanoseconds as a time in UTC, to the second; nothing for None."""
    if timestamp is None:
        return ""
    return datetime_from_ns(timestamp).isoformat(timespec="seconds")


def one_line(text: str) -> str:
    """Escape control characters, which could break lines or control the terminal."""
    return text.translate(_CONTROL)


def readable(data: bytes) -> str:
    """Return bytes as text on one line; what is not UTF-8 is escaped."""
    return one_line(data.decode("utf-8", "backslashreplace"))


def json_bytes(name: str, data: bytes) -> dict[str, str]:
    """Return bytes as a field of JSON: `name` if they are UTF-8, else `name_base64`."""
    try:
        return {name: data.decode("utf-8")}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode("ascii")}


def json_headers(headers: Mapping[str, bytes]) -> dict[str, Any]:
    """Return headers as fields of JSON; those that are not UTF-8 in `headers_base64`."""
    plain: dict[str, str] = {}
    encoded: dict[str, str] = {}
    for name, data in headers.items():
        shown = json_bytes("value", data)
        if "value" in shown:
            plain[name] = shown["value"]
        else:
            encoded[name] = shown["value_base64"]
    return {"headers": plain, "headers_base64": encoded} if encoded else {"headers": plain}
