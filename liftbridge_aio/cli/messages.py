"""How messages are shown, and which of them are wanted. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, Literal, Self, TypeAlias

from liftbridge_aio.model import RESERVED_HEADERS, Message

from .arguments import BadArgument
from .output import json_bytes, json_headers, readable

GrepField: TypeAlias = Literal["value", "key", "headers"]
"""What of a message is searched."""


def message_json(message: Message) -> dict[str, Any]:
    """Give every field of a message; bytes that are no UTF-8 in base64."""
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
    """Show a message of any partition on one line, fields apart by tabs.

    Args:
        message: the message.
        headers: whether its headers follow, without those that servers write.
    """
    fields = [
        message.time.isoformat(timespec="milliseconds"),
        str(message.partition),
        str(message.offset),
        readable(message.key),
        readable(message.value),
    ]
    if headers:
        fields += [readable(header) for header in _own_headers(message)]
    return "\t".join(fields)


@dataclass(frozen=True, slots=True)
class Grep:
    """A regular expression, and where in a message it is searched."""

    pattern: re.Pattern[str]
    fields: Collection[GrepField]

    @classmethod
    def parse(cls, expression: str, fields: Collection[GrepField]) -> Self:
        """Make one of what was typed.

        Raises:
            BadArgument: that is no regular expression.
        """
        try:
            pattern = re.compile(expression)
        except re.error as error:
            message = f"{expression!r} is no regular expression: {error}"
            raise BadArgument(message) from None
        return cls(pattern, fields)

    def finds(self, message: Message) -> bool:
        """Whether a message has it; a header is searched as `name=value`."""
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
            yield from _own_headers(message)


def _own_headers(message: Message) -> Iterator[bytes]:
    for name, value in message.headers.items():
        if name not in RESERVED_HEADERS:
            yield name.encode() + b"=" + value
