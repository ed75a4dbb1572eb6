"""Format messages, and search them. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal, Self, TypeAlias

from liftbridge_aio.model import Message

from .arguments import BadArgument, encode_argument
from .output import json_bytes, json_headers, readable

GrepField: TypeAlias = Literal["value", "key", "headers"]
"""The part of a message that is searched."""


def message_json(message: Message) -> dict[str, Any]:
    """Return every field of a message as JSON has it; bytes that are not UTF-8 in base64."""
    return {
        "stream": message.stream,
        "partition": message.partition,
        "offset": message.offset,
        **json_bytes("key", message.key),
        **json_bytes("value", message.value),
        "timestamp": message.timestamp,
        "time": message.time.isoformat(),
        "subject": message.subject,
        "reply_subject": message.reply_subject,
        **json_headers(message.headers),
    }


def message_line(message: Message, *, headers: bool) -> str:
    """Return a message as one line with fields separated by tabs.

    Args:
        message: of any partition.
        headers: True to append its headers.
    """
    fields = [
        message.time.isoformat(timespec="milliseconds"),
        str(message.partition),
        str(message.offset),
        readable(message.key),
        readable(message.value),
    ]
    if headers:
        fields += [readable(header) for header in _header_lines(message)]
    return "\t".join(fields)


_FIELDS: Final[dict[str, Callable[[Message], bytes]]] = {
    "k": lambda message: message.key,
    "K": lambda message: b"%d" % len(message.key),
    "v": lambda message: message.value,
    "V": lambda message: b"%d" % len(message.value),
    "h": lambda message: b",".join(_header_lines(message)),
    "o": lambda message: b"%d" % message.offset,
    "p": lambda message: b"%d" % message.partition,
    "t": lambda message: message.stream.encode(),
    "T": lambda message: b"%d" % (message.timestamp // 1_000_000),
    "s": lambda message: message.value,
    "S": lambda message: b"%d" % len(message.value),
    "%": lambda _: b"%",
}
"""The fields of a template, by the letter after the percent sign; `s` and `S` are kcat's names."""
_ESCAPES: Final = {"n": b"\n", "r": b"\r", "t": b"\t", "0": b"\0", "\\": b"\\"}
_PART: Final = re.compile(r"%(.?)|\\(x[0-9a-fA-F]{2}|.?)|([^%\\]+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Template:
    r"""A template that shows messages, as kcat has them: `%k %v\n`."""

    parts: tuple[bytes | Callable[[Message], bytes], ...]
    """Text, and fields of the message."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a template.

        Raises:
            BadArgument: there is no such field or escape sequence.
        """
        parts: list[bytes | Callable[[Message], bytes]] = []
        for field, escape, plain in _PART.findall(text):
            if plain:
                parts.append(encode_argument(plain))
            elif field in _FIELDS:
                parts.append(_FIELDS[field])
            elif len(escape) > 1:
                parts.append(bytes.fromhex(escape[1:]))
            elif escape in _ESCAPES:
                parts.append(_ESCAPES[escape])
            else:
                raise BadArgument(
                    f"{text!r} is not a template: %k is the key, %v the value, %o the offset, %h"
                    " headers, %p the partition, %t the stream, %T the time in ms, %K and %V are"
                    r" lengths, %% a percent sign; \n, \t, \r, \0, \x1f and \\ are characters"
                )
        return cls(tuple(parts))

    def render(self, message: Message, *, readably: bool) -> bytes:
        """Return a message in this format.

        Args:
            message: of any partition.
            readably: True to escape what could control a terminal, in fields of the message.
        """
        return b"".join(
            part
            if isinstance(part, bytes)
            else readable(part(message)).encode()
            if readably
            else part(message)
            for part in self.parts
        )


@dataclass(frozen=True, slots=True)
class Grep:
    """A regular expression, and the parts of a message to search."""

    pattern: re.Pattern[str]
    fields: Collection[GrepField]

    @classmethod
    def parse(cls, expression: str, fields: Collection[GrepField]) -> Self:
        """Compile a regular expression.

        Raises:
            BadArgument: it is invalid.
        """
        try:
            pattern = re.compile(expression)
        except re.error as error:
            raise BadArgument(f"{expression!r} is not a regular expression: {error}") from None
        return cls(pattern, fields)

    def finds(self, message: Message) -> bool:
        """Return True if a message matches; a header is searched as `name=value`."""
        return any(
            self.pattern.search(data.decode("utf-8", "surrogateescape"))
            for data in self._searched(message)
        )

    def _searched(self, message: Message) -> Iterator[bytes]:
        if "value" in self.fields:
            yield message.value
        if "key" in self.fields:
            yield message.key
        if "headers" in self.fields:
            yield from _header_lines(message)


def _header_lines(message: Message) -> Iterator[bytes]:
    for name, value in message.headers.items():
        yield name.encode() + b"=" + value
