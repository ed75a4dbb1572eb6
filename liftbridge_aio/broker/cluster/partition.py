"""One node's replica of a partition: its log, its role and its timers.

Pure: the time comes in as an argument.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from liftbridge_aio.broker.storage.core.log import (
    IncorrectOffset,
    LogReadonly,
    PartitionLog,
)
from liftbridge_aio.broker.storage.core.operations import CreateStream
from liftbridge_aio.broker.storage.core.segment import CorruptSegment
from liftbridge_aio.broker.storage.core.stream_config import cleaner_interval
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
from .replication import Leadership
from .subjects import partition_subject

_MILLISECOND: Final = 10**6
_BATCH: Final = 1_000
"""Messages that a follower fetches at once."""

logger = logging.getLogger("liftbridge_aio.broker")


class Partition:
    """A partition as one broker sees it: as leader, as follower or without a role."""

    def __init__(
        self,
        operation: CreateStream,
        number: int,
        epoch: int,
        server_id: str,
        open_log: Callable[[], PartitionLog],
    ) -> None:
        """Create a partition without a role; the log is opened when it is first used.

        Args:
            operation: the creation of the stream.
            number: number of the partition.
            epoch: index of the creation.
            server_id: id of this broker.
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
        """True from a pause until the partition is resumed."""
        self.leadership: Leadership | None = None
        """Set while this broker is the leader."""
        self.is_following = False
        self.must_truncate = False
        """True until a follower has dropped the messages that its leader does not have."""
        self.last_contact = 0
        """Time of a follower's last fetch from its leader; Unix nanoseconds."""
        self.next_clean = 0
        """Time of the next cleaning of the log; Unix nanoseconds."""
        self.subscribers = 0
        self.group_subscribers = GroupSubscribers()
        self.on_append: Callable[[Partition], None] | None = None
        """Called when there are messages for followers to fetch."""
        self._server_id = server_id
        self._open_log = open_log
        self._opened: PartitionLog | None = None
        self._shown_paused = False
        self._shown_readonly = False
        self._readonly = False
        self._messages_received = EventTimestamps()
        self._pause_changes = EventTimestamps()
        self._readonly_changes = EventTimestamps()
        self._idle_since = 0

    @property
    def log(self) -> PartitionLog:
        """The log; a resume replaces the object.

        Raises:
            OSError: it was not open yet and cannot be opened.
        """
        return self.open() if self._opened is None else self._opened

    def open(self) -> PartitionLog:
        """Open the log if necessary; that of a paused partition only knows its end.

        Raises:
            OSError: it cannot be opened.
        """
        if self._opened is None:
            self._opened = self._open_log()
            if self._readonly:
                self._opened.set_readonly(True)
            if self.is_paused:
                if self.replicas == (self._server_id,) and self.config.min_isr <= 1:
                    self._opened.commit(self._opened.newest_offset)  # as it did before a restart
                self._opened.close()
        return self._opened

    def discard_log(self) -> None:
        """Continue without a log that cannot be opened: store no messages, serve none."""
        self.deactivate()
        self._opened = PartitionLog()
        self._opened.close()

    @property
    def is_replica(self) -> bool:
        """True if this broker is a replica of the partition."""
        return self._server_id in self.replicas

    def lead(self, now: int) -> None:
        """Become the leader: store messages and serve followers.

        What can be committed by now, `advance` commits.
        """
        followers = [one for one in self.replicas if one != self._server_id]
        self.is_following = False
        self.leadership = Leadership(followers, self.log.newest_offset, now)
        self.log.begin_epoch(self.leader_epoch)
        self._idle_since = now
        self.next_clean = now + cleaner_interval(self.config)

    def follow(self, now: int) -> None:
        """Become a follower."""
        self.leadership = None
        self.is_following = True
        self.must_truncate = True
        self.last_contact = now
        self.next_clean = now + cleaner_interval(self.config)

    def deactivate(self) -> None:
        """Neither lead nor follow. Pending acks are never sent."""
        self.leadership = None
        self.is_following = False

    def change_leader(self, leader: str, epoch: int) -> None:
        """Record the leader of an epoch; the caller assigns this broker's role."""
        self.leader = leader
        self.leader_epoch = epoch

    def pause(self, now: int) -> None:
        """Close the log. Pausing a paused partition only moves the timestamps."""
        self.deactivate()
        self.is_paused = True
        self._shown_paused = True
        self._pause_changes = _after_event(self._pause_changes, now)
        if self._opened is not None:
            self._opened.close()

    def resume(self, now: int) -> None:
        """Open the log again.

        As on a real server, metadata still shows the partition as paused (no code there ever
        resets that) and as read-only, although the new log accepts messages.
        """
        self.is_paused = False
        self._pause_changes = _after_event(self._pause_changes, now)
        self._readonly = False
        self.group_subscribers = GroupSubscribers()
        if self._opened is not None:
            self._opened = self._opened.reopened()

    def set_readonly(self, readonly: bool, now: int) -> None:
        """Make the partition read-only or writable."""
        self._shown_readonly = self._readonly = readonly
        self._readonly_changes = _after_event(self._readonly_changes, now)
        if self._opened is not None:
            self._opened.set_readonly(readonly)

    def delete(self) -> None:
        """Delete the log; readers end."""
        self.deactivate()
        self.log.delete()

    def receive(self, subject: str, incoming: Incoming, now: int, max_message_bytes: int) -> None:
        """Store a message that arrived on `subject`, and answer with an ack or nack.

        There is no answer without an ack policy, if the log is read-only (as on a real server), and
        as long as too few replicas have the message.
        """
        leadership = self.leadership
        if leadership is None:
            return
        self._messages_received = _after_event(self._messages_received, now)
        if incoming.size > max_message_bytes:
            self._send_ack(subject, incoming, now, AckError.TOO_LARGE, commit_timestamp=0)
            return
        message = Message(
            self.stream,
            self.number,
            0,
            incoming.key,
            incoming.value,
            now,
            # The server overwrites these two headers of the publisher.
            {**incoming.headers, "subject": subject.encode(), "reply": b""},
            subject,
        )
        try:
            offset = self.log.append(message, incoming.expected_offset)
        except IncorrectOffset:
            self._send_ack(subject, incoming, now, AckError.INCORRECT_OFFSET)
            return
        except LogReadonly:
            return
        except OSError:
            logger.exception("cannot store a message of %s/%d", self.stream, self.number)
            return
        if incoming.ack_policy == AckPolicy.LEADER:
            self._send_ack(subject, incoming, now, offset=offset)
        elif incoming.ack_policy == AckPolicy.ALL:
            leadership.wait_for_commit(
                offset,
                lambda committed: self._send_ack(
                    subject, incoming, now, offset=offset, commit_timestamp=committed
                ),
            )
        self.advance(now)
        if leadership.followers and self.on_append is not None:
            self.on_append(self)

    def holds_all_committed(self, replica: str) -> bool:
        """Return True if a follower is known to have every committed message."""
        leadership = self.leadership
        return leadership is not None and leadership.holds_all_committed(
            replica, self.log.high_watermark
        )

    def advance(self, now: int) -> None:
        """Commit the messages that all replicas in sync have, if there are `min_isr` of these."""
        leadership = self.leadership
        if leadership is None or len(self.isr) < self.config.min_isr:
            return
        committed = self.log.newest_offset
        for replica in self.isr:
            if replica != self._server_id:
                committed = min(committed, leadership.followers[replica].newest_offset)
        self.log.commit(committed)
        leadership.settle(committed, now)

    def fetch_from(self, leader: Partition, now: int) -> bool:
        """Fetch once from the leader's replica, as a follower.

        Returns:
            True if another round would bring new messages or commits to a replica.
        """
        leadership = leader.leadership
        if leadership is None or not self.is_following or self.leader_epoch != leader.leader_epoch:
            return False
        self.last_contact = now
        log = self.log
        if self.must_truncate:
            # Both logs agree up to the end of the last epoch that both know; what this one has
            # beyond it was never committed. A real server asks for the end of the follower's last
            # epoch: where the leader does not know that one, the logs may differ before the end
            # that it answers.
            epoch = log.epochs.last_shared(leader.log.epochs)
            log.truncate(min(leader.log.end_offset_of(epoch), log.end_offset_of(epoch)))
            self.must_truncate = False
        progress = leadership.followers[self._server_id]
        progress.last_fetch = now
        before = leader.log.high_watermark
        if progress.newest_offset != log.newest_offset:
            progress.newest_offset = log.newest_offset
            leader.advance(now)
        high_watermark = leader.log.high_watermark
        batch = leader.log.read_stored(log.next_offset, _BATCH)
        if batch:
            log.append_replicated(batch, leader.log.epochs)
        else:
            progress.last_caught_up = now
        log.commit(high_watermark)
        # Other followers have yet to learn of what the leader has just committed.
        return bool(batch) or high_watermark > before

    def cut_to_watermark(self) -> None:
        """Drop what may be uncommitted, of a follower that has not reached its leader yet.

        A real server does so if the leader does not answer; its high watermark may be outdated.
        """
        if self.must_truncate:
            self.log.truncate(self.log.high_watermark + 1)

    def note_high_watermark(self) -> None:
        """Note the high watermark of a log that was opened."""
        if self._opened is not None:
            self._opened.note_high_watermark()

    def next_due(self) -> int | None:
        """Return the earliest time at which `clean` or `is_idle` may be due.

        None without a role. Calling them at this time may turn out to be too early.
        """
        if self.leadership is None and not self.is_following:
            return None
        pause = self._pause_due()
        return self.next_clean if pause is None else min(self.next_clean, pause)

    def clean(self, now: int) -> None:
        """Clean the log, if it is due."""
        if self.next_clean > now or (self.leadership is None and not self.is_following):
            return
        self.next_clean = now + cleaner_interval(self.config)
        try:
            self.log.clean(now)
        except (OSError, CorruptSegment):
            logger.exception("cannot clean %s/%d", self.stream, self.number)

    def is_idle(self, now: int) -> bool:
        """Return True if the partition is due to be paused, after `auto_pause_time` without use."""
        due = self._pause_due()
        if due is None or due > now:
            return False
        if self.config.auto_pause_disable_if_subscribers and self.subscribers:
            self.reset_idle_time(now)
            return False
        return True

    def reset_idle_time(self, now: int) -> None:
        """Restart the auto-pause timer."""
        self._idle_since = now

    def _pause_due(self) -> int | None:
        timeout = self.config.auto_pause_time
        if self.leadership is None or timeout is None or timeout <= 0:
            return None
        return max(self._messages_received.latest or 0, self._idle_since) + timeout * _MILLISECOND

    def _send_ack(
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
        """Return the partition's metadata."""
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
