"""Explains why a committed reading shows nothing, and rolls back what a dead producer left."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

from liftbridge_aio.model import AckPolicy, Message, OutgoingMessage, PartitionInfo
from liftbridge_aio.retry import Retry

from .core.open_spans import OpenSpan, OpenSpans
from .errors import MalformedAck, NewerFormat, TransactionActive
from .log_format import ACK_HEADERS, ack_values, event_of
from .reading import OnMalformed, check_on_malformed

IDLE: Final = 60.0
"""Seconds without a message after which a transaction is taken for abandoned."""
_NS: Final = 1e9


@dataclass(frozen=True, slots=True)
class Explanation:
    """The obstacle that a committed reading of a partition waits for."""

    stream: str
    partition: int
    newest_offset: int
    """Of the newest message that the leader stores."""
    high_watermark: int
    """Of the newest one that readers get."""
    paused: bool
    open: tuple[OpenSpan, ...]
    """The open transactions, the oldest first."""
    now: int
    """The time of this, in Unix nanoseconds, for ages."""
    malformed: int = 0
    """Malformed acks that were skipped."""

    def age(self, span: OpenSpan) -> float:
        """Return for how many seconds a transaction has been open."""
        return max(self.now - span.began, 0) / _NS

    def idle(self, span: OpenSpan) -> float:
        """Return how many seconds ago the newest message of a transaction was stored."""
        return max(self.now - span.latest, 0) / _NS

    def __str__(self) -> str:
        """Say it in a line for each reason."""
        lines = [
            f"producer {span.producer.hex()} has not ended a transaction"
            f" (messages: {span.messages}, offsets: {span.begin} to {span.newest}):"
            f" begun {self.age(span):.0f} s ago, idle for {self.idle(span):.0f} s"
            for span in self.open
        ]
        if self.malformed:
            were = "ack was" if self.malformed == 1 else "acks were"
            lines.append(f"{self.malformed} malformed {were} skipped")
        if self.paused:
            lines.insert(0, "the partition is paused")
        if self.high_watermark < self.newest_offset:
            lines.insert(
                0,
                f"messages from offset {self.high_watermark + 1} to {self.newest_offset} are stored"
                " but not committed by the server yet",
            )
        if not lines:
            lines = [f"nothing is open up to offset {self.high_watermark}"]
        return "\n".join([f"{self.stream}/{self.partition}:", *lines])


class Explainer:
    """Makes an `Explanation` of the messages of a partition."""

    def __init__(self, on_malformed: OnMalformed) -> None:
        """Begin with the oldest message that is looked at."""
        check_on_malformed(on_malformed)
        self._on_malformed = on_malformed
        self._malformed = 0
        self._spans = OpenSpans()

    def feed(self, message: Message) -> None:
        """Take the next message.

        Raises:
            NewerFormat: it is an ack of a later version of the format.
            MalformedAck: it is a malformed ack, and these are not skipped.
        """
        headers = message.transaction_headers
        if not headers:
            return
        try:
            event = event_of(message.offset, headers, message.value, None)
        except (NewerFormat, MalformedAck) as error:
            if isinstance(error, MalformedAck) and self._on_malformed == "skip":
                self._malformed += 1
                return
            raise error.at(message.stream, message.partition) from None
        self._spans.feed(message.offset, message.timestamp, event.uuid, event.acks)

    def explanation(self, stream: str, state: PartitionInfo) -> Explanation:
        """Return what was found out."""
        return Explanation(
            stream,
            state.id,
            state.newest_offset,
            state.high_watermark,
            state.paused,
            tuple(self._spans.found(stream, state.id)),
            time.time_ns(),
            self._malformed,
        )


def check_idle(span: OpenSpan, *, force: bool) -> None:
    """Refuse to end the transaction of a producer that may be at work.

    Raises:
        TransactionActive: its newest message is young, and `force` is False.
    """
    idle = (time.time_ns() - span.latest) / _NS
    if idle < IDLE and not force:
        raise TransactionActive(
            f"the newest message of the transaction of producer {span.producer.hex()} is {idle:.0f}"
            " s old, so its producer may be at work"
        ).at(span.stream, span.partition, span.newest)


def rollback_message(span: OpenSpan, *, force: bool) -> OutgoingMessage:
    """Return the ack that rolls an abandoned transaction back for good.

    Raises:
        TransactionActive: its newest message is young, and `force` is False.
    """
    check_idle(span, force=force)
    [value] = ack_values([span.rollback])
    return OutgoingMessage(
        span.stream,
        value,
        partition=span.partition,
        ack_policy=AckPolicy.ALL,
        retry=Retry(),
        own_headers=ACK_HEADERS,
    )
