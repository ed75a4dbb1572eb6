"""One broker's replica of a partition: its log, and what the broker does with it.

Pure: the time comes in as an argument.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from liftbridge_aio.model import (
    Ack,
    AckError,
    AckPolicy,
    EventTimestamps,
    Message,
    PartitionInfo,
)

from .group_subscribers import GroupSubscribers
from .incoming import Incoming
from .leading import Leading
from .log import IncorrectOffset, LogReadonly, PartitionLog
from .log_limits import cleaner_interval
from .operations import CreateStream
from .segment import CorruptSegment
from .subjects import partition_subject

_MILLISECOND: Final = 10**6

_log = logging.getLogger("liftbridge_aio.broker")


class Partition:
    """A partition as one broker sees it: leading, following, or only knowing of it."""

    def __init__(
        self,
        operation: CreateStream,
        number: int,
        epoch: int,
        server_id: str,
        open_log: Callable[[], PartitionLog],
    ) -> None:
        """Begin as operation says; the log is opened when it is first looked at.

        Args:
            operation: the stream's creation.
            number: the partition's id.
            epoch: index of the creation.
            server_id: the broker that sees it.
            open_log: opens the log.
        """
        placement = operation.partitions[number]
        self.stream = operation.name
        self.base_subject = operation.subject
        self.number = number
        self.subject = partition_subject(operation.subject, number)
        self.config = operation.config
        self.replicas = placement.replicas
        self.isr = list(placement.replicas)
        self.leader = placement.leader
        self.leader_epoch = epoch
        self.is_paused = False
        """Whether the partition rests until somebody resumes it."""
        self.leading: Leading | None = None
        """Set while this broker leads it."""
        self.is_following = False
        self.must_truncate = False
        """Whether a follower has yet to drop what its leader does not have."""
        self.leader_seen = 0
        """When a follower last heard of its leader; Unix nanoseconds."""
        self.clean_due = 0
        """When the log is to be cleaned; Unix nanoseconds."""
        self.subscribers = 0
        self.group_subscribers = GroupSubscribers()
        self.on_append: Callable[[Partition], None] | None = None
        """Told of messages that followers have yet to fetch."""
        self._server_id = server_id
        self._open_log = open_log
        self._opened: PartitionLog | None = None
        self._shown_paused = False
        self._shown_readonly = False
        self._refuses = False
        self._messages_received = EventTimestamps()
        self._pause_changes = EventTimestamps()
        self._readonly_changes = EventTimestamps()
        self._idle_since = 0

    @property
    def log(self) -> PartitionLog:
        """What is stored. After a resume it is another object.

        Raises:
            OSError: it was not open yet, and cannot be opened.
        """
        return self.open() if self._opened is None else self._opened

    def open(self) -> PartitionLog:
        """Open the log if it is not open; that of a paused partition can only be asked for its end.

        Raises:
            OSError: it cannot be opened.
        """
        if self._opened is None:
            self._opened = self._open_log()
            if self._refuses:
                self._opened.set_readonly(True)
            if self.is_paused:
                if self.replicas == (self._server_id,) and self.config.min_isr <= 1:
                    self._opened.commit(self._opened.newest_offset)  # as it did before a restart
                self._opened.close()
        return self._opened

    def break_off(self) -> None:
        """Go on without a log, as nothing can be stored: take no messages, give none."""
        self.rest()
        self._opened = PartitionLog()
        self._opened.close()

    @property
    def is_replica(self) -> bool:
        """Whether this broker keeps the partition."""
        return self._server_id in self.replicas

    def lead(self, now: int) -> None:
        """Take messages and serve followers from now on."""
        followers = [one for one in self.replicas if one != self._server_id]
        self.is_following = False
        self.leading = Leading(followers, self.log.newest_offset, now)
        self.log.begin_epoch(self.leader_epoch)
        self._idle_since = now
        self.clean_due = now + cleaner_interval(self.config)
        self.advance(now)

    def follow(self, now: int) -> None:
        """Fetch from the leader from now on."""
        self.leading = None
        self.is_following = True
        self.must_truncate = True
        self.leader_seen = now
        self.clean_due = now + cleaner_interval(self.config)

    def rest(self) -> None:
        """Neither lead nor follow. Who waits for an ack hears nothing."""
        self.leading = None
        self.is_following = False

    def change_leader(self, leader: str, epoch: int) -> None:
        """Let `leader` lead in the epoch; what this broker does then is for others to say."""
        self.leader = leader
        self.leader_epoch = epoch

    def pause(self, now: int) -> None:
        """Close the log. Pausing a paused partition only moves the timestamps."""
        self.rest()
        self.is_paused = True
        self._shown_paused = True
        self._pause_changes = _after_event(self._pause_changes, now)
        if self._opened is not None:
            self._opened.close()

    def resume(self, now: int) -> None:
        """Open the log again.

        As on a real server, the metadata goes on to say "paused" (no code there ever takes it
        back) and "readonly", although the new log takes messages.
        """
        self.is_paused = False
        self._pause_changes = _after_event(self._pause_changes, now)
        self._refuses = False
        self.group_subscribers = GroupSubscribers()
        if self._opened is not None:
            self._opened = self._opened.reopened()

    def set_readonly(self, readonly: bool, now: int) -> None:
        """Refuse or accept messages."""
        self._shown_readonly = self._refuses = readonly
        self._readonly_changes = _after_event(self._readonly_changes, now)
        if self._opened is not None:
            self._opened.set_readonly(readonly)

    def delete(self) -> None:
        """Forget what is stored, for good; readers are told."""
        self.rest()
        self.log.delete()

    def receive(self, subject: str, incoming: Incoming, now: int, max_message_bytes: int) -> None:
        """Store a message that arrived on `subject`, and tell its publisher what comes of it.

        It is told nothing if it asked for nothing, if the log is read-only (the real server is
        silent as well), and as long as too few replicas have the message.
        """
        leading = self.leading
        if leading is None:
            return
        self._messages_received = _after_event(self._messages_received, now)
        if incoming.size > max_message_bytes:
            self._answer(subject, incoming, now, AckError.TOO_LARGE, commit_timestamp=0)
            return
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
            self._answer(subject, incoming, now, AckError.INCORRECT_OFFSET)
            return
        except LogReadonly:
            return
        except OSError:
            _log.exception("cannot store a message of %s/%d", self.stream, self.number)
            return
        if incoming.ack_policy == AckPolicy.LEADER:
            self._answer(subject, incoming, now, offset=offset)
        elif incoming.ack_policy == AckPolicy.ALL:
            leading.wait_for_commit(
                offset,
                lambda committed: self._answer(
                    subject, incoming, now, offset=offset, commit_timestamp=committed
                ),
            )
        self.advance(now)
        if leading.followers and self.on_append is not None:
            self.on_append(self)

    def is_complete(self, replica: str) -> bool:
        """Tell whether a follower of this leader surely has all that was ever committed."""
        leading = self.leading
        return leading is not None and leading.is_complete(replica, self.log.high_watermark)

    def advance(self, now: int) -> None:
        """Commit what all replicas in sync have, if these are enough."""
        leading = self.leading
        if leading is None or len(self.isr) < self.config.min_isr:
            return
        committed = self.log.newest_offset
        for replica in self.isr:
            if replica != self._server_id:
                committed = min(committed, leading.followers[replica].newest_offset)
        self.log.commit(committed)
        leading.settle(committed, now)

    def next_due(self) -> int | None:
        """Tell when `clean` or `is_idle` may have something to say; None: not for now.

        Something that has to be done can be due later than this, never earlier.
        """
        if self.leading is None and not self.is_following:
            return None
        pause = self._pause_due()
        return self.clean_due if pause is None else min(self.clean_due, pause)

    def clean(self, now: int) -> None:
        """Roll, forget and compact, if it is time."""
        if self.clean_due > now or (self.leading is None and not self.is_following):
            return
        self.clean_due = now + cleaner_interval(self.config)
        try:
            self.log.clean(now)
        except (OSError, CorruptSegment):
            _log.exception("cannot clean %s/%d", self.stream, self.number)

    def is_idle(self, now: int) -> bool:
        """Tell whether the partition pauses by itself now, as nothing has come for long enough."""
        due = self._pause_due()
        if due is None or due > now:
            return False
        if self.config.auto_pause_disable_if_subscribers and self.subscribers:
            self.stay_awake(now)
            return False
        return True

    def stay_awake(self, now: int) -> None:
        """Count the partition as busy until now."""
        self._idle_since = now

    def _pause_due(self) -> int | None:
        wait = self.config.auto_pause_time
        if self.leading is None or wait is None or wait <= 0:
            return None
        return max(self._messages_received.latest or 0, self._idle_since) + wait * _MILLISECOND

    def _answer(
        self,
        subject: str,
        incoming: Incoming,
        now: int,
        error: AckError = AckError.OK,
        *,
        offset: int = 0,
        commit_timestamp: int | None = None,
    ) -> None:
        if not incoming.ack_inbox:
            return
        incoming.reply(
            Ack(
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
        )

    def info(self) -> PartitionInfo:
        """Describe the partition for metadata."""
        return PartitionInfo(
            id=self.number,
            leader=self.leader,
            replicas=self.replicas,
            isr=tuple(self.isr),
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
