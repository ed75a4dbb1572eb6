"""A message on its way from a publisher to the partitions that listen on its subject."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from liftbridge_aio.model import UNCHECKED_OFFSET, Ack, AckPolicy
from liftbridge_aio.publish_check import MAX_HEADER_NAME_BYTES, MAX_HEADERS

from .envelope_size import envelope_size


@dataclass(slots=True)
class Incoming:
    """What an envelope carries. Made once per message, so it is slotted and not frozen."""

    key: bytes
    value: bytes
    headers: Mapping[str, bytes]
    ack_inbox: str
    correlation_id: str
    ack_policy: int
    """As on the wire: an unknown number is stored but never acked."""
    reply: Callable[[Ack], None]
    """Takes the acks, one of each partition that answers: at once, later or never."""
    expected_offset: int = UNCHECKED_OFFSET
    stream: str = ""
    """The stream that the publisher named; empty if it named only a subject."""
    inbox_is_awaited: bool = False
    """Whether the call itself waits for the ack, and so the server subscribes to its inbox."""
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
        """What no server could store of the headers; None where they are fine."""
        if len(self.headers) > MAX_HEADERS:
            return f"a message has at most {MAX_HEADERS} headers, not {len(self.headers)}"
        if any(len(name.encode()) > MAX_HEADER_NAME_BYTES for name in self.headers):
            return f"the name of a header has at most {MAX_HEADER_NAME_BYTES} bytes"
        return None

    @property
    def wants_ack(self) -> bool:
        """Whether the publisher waits for an answer."""
        return self.ack_policy != AckPolicy.NONE

    @property
    def known_ack_policy(self) -> AckPolicy:
        """The ack policy; only messages with a known one are acked."""
        return AckPolicy(self.ack_policy)
