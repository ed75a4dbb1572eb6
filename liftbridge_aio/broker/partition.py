"""One partition: its log, and whether it takes part in anything.

Pure: the time comes in as an argument.
"""

from __future__ import annotations

import enum

from liftbridge_aio.model import (
    Ack,
    AckError,
    AckPolicy,
    EventTimestamps,
    Message,
    PartitionInfo,
)

from .incoming import Incoming
from .log import IncorrectOffset, LogReadonly, PartitionLog
from .stream_config import StreamConfig
from .subjects import partition_subject

_REPLICAS = 1


class PartitionState(enum.Enum):
    """What a partition does with messages on its subject."""

    LEADING = "leading"
    PAUSED = "paused"


class Partition:
    """A partition of a stream, led by the only broker there is."""

    def __init__(self, stream: str, base_subject: str, number: int, config: StreamConfig) -> None:
        """Begin with an empty log.

        Args:
            stream: name of the stream.
            base_subject: subject of the stream.
            number: the partition's id.
            config: settings of the stream.
        """
        self.stream = stream
        self.base_subject = base_subject
        self.number = number
        self.subject = partition_subject(base_subject, number)
        self.state = PartitionState.LEADING
        self.log = PartitionLog(concurrency_control=config.optimistic_concurrency_control)
        self._commits = config.min_isr <= _REPLICAS
        self._shown_paused = False
        self._shown_readonly = False
        self._messages_received = EventTimestamps()
        self._pause_changes = EventTimestamps()
        self._readonly_changes = EventTimestamps()

    @property
    def is_paused(self) -> bool:
        """Whether the partition rests until somebody resumes it."""
        return self.state is PartitionState.PAUSED

    def pause(self, now: int) -> None:
        """Close the log. Pausing a paused partition only moves the timestamps."""
        self.state = PartitionState.PAUSED
        self._shown_paused = True
        self._pause_changes = _after_event(self._pause_changes, now)
        self.log.close()

    def resume(self, now: int) -> None:
        """Open the log again; nothing happens if the partition is not paused.

        As on a real server, the metadata goes on to say "paused" (no code there ever takes it
        back) and "readonly", although the new log takes messages.
        """
        if self.state is PartitionState.LEADING:
            return
        self.state = PartitionState.LEADING
        self._pause_changes = _after_event(self._pause_changes, now)
        self.log = self.log.reopened()

    def set_readonly(self, readonly: bool, now: int) -> None:
        """Refuse or accept messages."""
        self.log.set_readonly(readonly)
        self._shown_readonly = readonly
        self._readonly_changes = _after_event(self._readonly_changes, now)

    def receive(
        self, subject: str, incoming: Incoming, now: int, max_message_bytes: int
    ) -> Ack | None:
        """Store a message that arrived on `subject`, and return what its publisher is told.

        None: nothing, because it asked for nothing, because the log is read-only (the real server
        is silent as well), or because it waits for replicas that do not exist.
        """
        self._messages_received = _after_event(self._messages_received, now)
        if incoming.size > max_message_bytes:
            return self._ack(subject, incoming, now, error=AckError.TOO_LARGE, commit_timestamp=0)
        message = Message(
            self.stream,
            self.number,
            0,
            incoming.key,
            incoming.value,
            now,
            # The server writes these two names over the publisher's (W5).
            {**incoming.headers, "subject": subject.encode(), "reply": b""},
            subject,
        )
        try:
            offset = self.log.append(message, incoming.expected_offset)
        except IncorrectOffset:
            return self._ack(subject, incoming, now, error=AckError.INCORRECT_OFFSET)
        except LogReadonly:
            return None
        if self._commits:
            self.log.commit(offset)
        stored = incoming.ack_policy == AckPolicy.LEADER
        replicated = incoming.ack_policy == AckPolicy.ALL and self._commits
        return self._ack(subject, incoming, now, offset) if stored or replicated else None

    def _ack(
        self,
        subject: str,
        incoming: Incoming,
        now: int,
        offset: int = 0,
        error: AckError = AckError.OK,
        commit_timestamp: int | None = None,
    ) -> Ack | None:
        if not incoming.ack_inbox:
            return None
        return Ack(
            self.stream,
            self.base_subject,
            subject,
            offset,
            incoming.ack_inbox,
            incoming.correlation_id,
            incoming.known_ack_policy,
            now,
            now if commit_timestamp is None else commit_timestamp,
            error,
        )

    def info(self, server_id: str) -> PartitionInfo:
        """Describe the partition for metadata."""
        return PartitionInfo(
            id=self.number,
            leader=server_id,
            replicas=(server_id,),
            isr=(server_id,),
            high_watermark=self.log.high_watermark,
            newest_offset=self.log.newest_offset,
            paused=self._shown_paused,
            readonly=self._shown_readonly,
            messages_received=self._messages_received,
            pause=self._pause_changes,
            readonly_changes=self._readonly_changes,
        )


def _after_event(timestamps: EventTimestamps, now: int) -> EventTimestamps:
    return EventTimestamps(now if timestamps.first is None else timestamps.first, now)
