"""A message on its way from a publisher to the partitions subscribed to its subject."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from liftbridge_aio._core.message_check import MAX_HEADER_NAME_BYTES, MAX_HEADERS
from liftbridge_aio.model import UNCHECKED_OFFSET, Ack, AckPolicy

_ENVELOPE_HEADER: Final = 8
_TAG: Final = 1  # every field of a Message has a number below 16


@dataclass(slots=True)
class Incoming:
    """The contents of an envelope. Created once per message, so it is slotted and not frozen."""

    key: bytes
    value: bytes
    headers: Mapping[str, bytes]
    ack_inbox: str
    correlation_id: str
    ack_policy: int
    """The number on the wire; messages with an unknown one are stored but never acked."""
    reply: Callable[[Ack], None]
    """Receives the acks, one of each partition that answers: at once, later or never."""
    expected_offset: int = UNCHECKED_OFFSET
    stream: str = ""
    """The stream named by the publisher; empty if it named only a subject."""
    inbox_is_awaited: bool = False
    """True if the call waits for the ack, for which the server subscribes to the inbox."""
    size: int = 0
    """Bytes of the envelope; see `measure`."""

    def measure(self, subject: str) -> int:
        """Set and return `size` for a publish to `subject`."""
        self.size = envelope_size(
            (self.key, self.value),
            (self.stream, subject, self.ack_inbox, self.correlation_id),
            (self.expected_offset, self.ack_policy),
            self.headers,
        )
        return self.size

    @property
    def header_problem(self) -> str | None:
        """The reason why no server could store the headers; None where they are fine."""
        if len(self.headers) > MAX_HEADERS:
            return f"a message may have at most {MAX_HEADERS} headers, not {len(self.headers)}"
        if any(len(name.encode()) > MAX_HEADER_NAME_BYTES for name in self.headers):
            return f"the name of a header may have at most {MAX_HEADER_NAME_BYTES} bytes"
        return None

    @property
    def wants_ack(self) -> bool:
        """True if the publisher expects an ack."""
        return self.ack_policy != AckPolicy.NONE

    @property
    def known_ack_policy(self) -> AckPolicy:
        """The ack policy; only messages with a known one are acked."""
        return AckPolicy(self.ack_policy)


def envelope_size(
    blobs: Iterable[bytes],
    texts: Iterable[str],
    numbers: Iterable[int],
    headers: Mapping[str, bytes],
) -> int:
    """Return the size in bytes of an envelope around a `Message` with these fields.

    Computed rather than measured: encoding every message once more would double the cost of a
    publish. Empty fields and zeros are not on the wire and count nothing.
    """
    size = _ENVELOPE_HEADER
    for blob in blobs:
        if blob:
            size += _field_size(len(blob))
    for text in texts:
        if text:
            size += _field_size(len(text.encode()))
    for number in numbers:
        if number:
            size += _TAG + _varint_size(number)
    for name, value in headers.items():
        size += _field_size(_field_size(len(name.encode())) + _field_size(len(value)))
    return size


def _field_size(length: int) -> int:
    return _TAG + _varint_size(length) + length


def _varint_size(number: int) -> int:
    return 10 if number < 0 else max(1, -(-number.bit_length() // 7))
