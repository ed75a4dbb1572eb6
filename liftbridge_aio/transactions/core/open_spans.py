"""Find the open transactions of a log: what a committed reading does not show yet. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .uuid import UUID_BYTES, Flags, parse_uuid
from .visibility import AckEntry


@dataclass(slots=True)
class _Span:
    begin: int
    newest: int
    messages: int
    began: int
    latest: int
    first_clock: int


class OpenSpans:
    """The transactions that are open behind the messages that were fed, in order."""

    def __init__(self) -> None:
        """Begin to follow a partition, at any offset."""
        self._spans: dict[bytes, _Span] = {}

    def feed(
        self, offset: int, timestamp: int, uuid: bytes | None, acks: Sequence[AckEntry]
    ) -> None:
        """Take the next message: its place, and what it is to transactions."""
        for ack in acks:
            self._spans.pop(ack.producer, None)
        if uuid is None or acks or len(uuid) != UUID_BYTES:
            return
        producer, clock, flags = parse_uuid(uuid)
        if not clock:
            return
        if flags != Flags.CONTINUE:
            self._spans.pop(producer, None)
            return
        span = self._spans.get(producer)
        if span is None:
            self._spans[producer] = _Span(offset, offset, 1, timestamp, timestamp, clock)
        else:
            span.newest, span.latest = offset, timestamp
            span.messages += 1

    def found(self, stream: str, partition: int) -> list[OpenSpan]:
        """Return them, the one that began first before the others."""
        return [
            OpenSpan(
                stream,
                partition,
                producer,
                span.begin,
                span.newest,
                span.messages,
                span.began,
                span.latest,
                # Any clock rolls back; this one claims no commit.
                max(span.first_clock - 1, 1),
            )
            for producer, span in self._spans.items()
        ]


@dataclass(frozen=True, slots=True)
class OpenSpan:
    """The part of an open transaction in one partition: its messages, of which none is shown."""

    stream: str
    partition: int
    producer: bytes
    """Its id, six bytes."""
    begin: int
    """Offset of its first message."""
    newest: int
    """Offset of its newest message."""
    messages: int
    """Number of its messages, repeats included."""
    began: int
    """When its first message was stored, in Unix nanoseconds."""
    latest: int
    """When its newest message was stored."""
    clock: int
    """A clock before its first message: what a rollback commits."""

    @property
    def rollback(self) -> AckEntry:
        """The ack that rolls it back for good: its producer can show nothing more of it."""
        return AckEntry(self.producer, self.clock, self.begin, self.clock, final=True)
