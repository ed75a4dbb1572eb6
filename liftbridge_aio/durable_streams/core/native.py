"""Partitions of Liftbridge's own streams, and what readers see of their messages. Pure."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from liftbridge_aio.model import ACK_HEADER, UUID_HEADER, Message
from liftbridge_aio.transactions.core.uuid import is_in_transaction
from liftbridge_aio.transactions.reading import ReadCommitted

_COMMITTED: Final = "committed"
_SKIPPING: Final = "skipping"


class NativeLog(NamedTuple):
    """A partition, read in one of several ways."""

    stream: str
    partition: int
    created: int
    """When the stream was created, in nanoseconds since 1970: another one of the same name has
    another log."""
    committed: bool
    skip_malformed: bool = False
    """A committed reading skips malformed acks of transactions."""

    @property
    def name(self) -> str:
        """The name under which it is followed: no stream of Liftbridge has it."""
        suffix = f"/{_COMMITTED}" if self.committed else ""
        suffix += f"/{_SKIPPING}" if self.committed and self.skip_malformed else ""
        return f"{self.stream}/{self.partition}/{self.created}{suffix}"

    @property
    def incarnation(self) -> int:
        """The incarnation in its offsets: microseconds, which have as many digits as fit."""
        return self.created // 1000

    @classmethod
    def parse(cls, name: str) -> NativeLog | None:
        """Return what has this name; None if it is a log of the gateway's own."""
        stream, *rest = name.split("/")
        if not rest:
            return None
        partition, created, *ways = rest
        return cls(stream, int(partition), int(created), _COMMITTED in ways, _SKIPPING in ways)

    def view(self, *, skip_truncated: bool = False) -> NativeView:
        """Return what makes messages of it, in order.

        Args:
            skip_truncated: show nothing of a committed transaction whose beginning retention has
                removed, instead of ending the reading.
        """
        return NativeView(
            committed=self.committed,
            skip_truncated=skip_truncated,
            skip_malformed=self.skip_malformed,
        )


class NativeView:
    """Messages of a partition as JSON objects: those of a transaction together, acks not at all.

    Args:
        committed: True for what is committed, in the order of acks; False for all that is there.
        skip_truncated: see `NativeLog.view`.
        skip_malformed: see `NativeLog`.
    """

    def __init__(
        self, *, committed: bool, skip_truncated: bool, skip_malformed: bool = False
    ) -> None:
        self.reads: bool | ReadCommitted = False
        """The `committed=` with which to read the partition."""
        if committed:
            # Acks say which position the messages before them have.
            self.reads = ReadCommitted(
                acks=True,
                on_truncated="skip" if skip_truncated else "error",
                on_malformed="skip" if skip_malformed else "error",
            )
        self._committed = committed
        self._pending: list[Message] = []
        """The messages of a transaction whose ack is the next that follows."""

    def show(self, messages: Iterable[Message]) -> Iterator[tuple[int, bytes]]:
        """Yield positions and what stands there: JSON objects joined by commas, or nothing."""
        for message in messages:
            headers = message.transaction_headers
            if ACK_HEADER in headers:
                position = message.offset
                yield position, b",".join(self._json(each, position) for each in self._pending)
                self._pending = []
            elif self._committed and is_in_transaction(headers.get(UUID_HEADER, b"")):
                self._pending.append(message)
            else:
                yield message.offset, self._json(message, message.offset)

    def _json(self, message: Message, position: int) -> bytes:
        return message_json(message, position if self._committed else None)


def message_json(message: Message, position: int | None = None) -> bytes:
    """Return a message as a JSON object.

    Bytes that are UTF-8 are strings; others are in base64, in a field whose name ends in
    `_base64`. The timestamp is in nanoseconds since 1970, as a string: JavaScript cannot hold it.

    Args:
        message: the message.
        position: the offset of the ack that commits it, or its own; None: not to be shown.
    """
    fields: dict[str, object] = {"offset": message.offset}
    if position is not None:
        fields["position"] = position
    fields["timestamp"] = str(message.timestamp)
    if message.key:
        fields |= _text("key", message.key)
    fields |= _text("value", message.value)
    if message.headers:
        fields["headers"] = {
            name: content
            for header, raw in message.headers.items()
            for name, content in _text(header, raw).items()
        }
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()


def _text(name: str, raw: bytes) -> dict[str, str]:
    try:
        return {name: raw.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(raw).decode()}
