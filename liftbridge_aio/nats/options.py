"""Options of a publisher over NATS: frozen, and checked when created."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from liftbridge_aio._core.arguments import (
    INT64_MAX,
    check_callable,
    check_flags,
    check_whole_number,
)
from liftbridge_aio.errors import InvalidRequest
from liftbridge_aio.model import Partitioner
from liftbridge_aio.options import Duration, seconds

_MIB: Final = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class NatsPublisherOptions:
    """Options of a `NatsPublisher`; names and defaults are those of `ClientOptions`."""

    connect_timeout: Duration = 5.0
    """Seconds to connect to NATS, for a publisher that opens the connection itself."""
    ack_timeout: Duration = 5.0
    """Seconds from handing a message to NATS to its ack; then `AckTimeout`."""
    publish_timeout: Duration = 30.0
    """Seconds that a message may wait for room in the window, and for NATS while it is away; then
    `PublishTimeout`."""
    close_timeout: Duration = 5.0
    """Seconds that `aclose` waits for acks before it fails what is left."""
    max_in_flight: int = 16_384
    """Messages that may be unsettled at once; more wait."""
    max_in_flight_bytes: int = 64 * _MIB
    """The same limit in bytes."""
    max_message_bytes: int = _MIB
    """Largest envelope that is sent. The `max_payload` of the NATS server is a limit too."""
    partitioner: Partitioner | None = None
    """Chooses the partition where a publish to a stream names none; None: by key, else 0."""
    crc: bool = False
    """Put a checksum into every envelope: some 50 µs for 250 bytes. A server stores an envelope
    that was damaged on the way as a plain value and acks nothing."""
    detect_nobody: bool = True
    """Have NATS say at once when nobody listens on a subject (`NobodyListens`), instead of waiting
    for an ack that cannot come. For that every message has a reply subject, which servers store
    with it: some 80 bytes more on disk, and readers see it as `reply_subject`."""

    def __post_init__(self) -> None:
        """Check every field.

        Raises:
            InvalidRequest: a value makes no sense.
            WrongType: a value has the wrong type.
        """
        for name in ("connect_timeout", "ack_timeout", "publish_timeout"):
            if seconds(getattr(self, name), name) == 0:
                raise InvalidRequest(f"{name} must be longer than 0 seconds")
        seconds(self.close_timeout, "close_timeout")
        for name, most in (
            ("max_in_flight", INT64_MAX),
            ("max_in_flight_bytes", INT64_MAX),
            ("max_message_bytes", 2**32 - 1),
        ):
            check_whole_number(getattr(self, name), name, 1, most)
        check_flags(crc=self.crc, detect_nobody=self.detect_nobody)
        if self.partitioner is not None:
            check_callable(self.partitioner, "partitioner")
