"""Format messages, and search them. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, Literal, Self, TypeAlias

from liftbridge_aio.model import Message

from .arguments import BadArgument
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
            message = f"{expression!r} is not a regular expression: {error}"
            raise BadArgument(message) from None
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
