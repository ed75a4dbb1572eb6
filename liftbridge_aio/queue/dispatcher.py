"""Delivers the messages of a queue, and applies the answers."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import deque
from typing import TYPE_CHECKING, Final

from liftbridge_aio._core.ready_flow import Outcome
from liftbridge_aio._subscribe.decoder import Decoder
from liftbridge_aio.errors import LiftbridgeError, UndecodableMessage, UsageError
from liftbridge_aio.groups.group_readers import GroupReaders
from liftbridge_aio.groups.workers import Workers
from liftbridge_aio.handlers import Nack, Reject
from liftbridge_aio.model import Message, StreamPartition
from liftbridge_aio.net.reporter import Reporter
from liftbridge_aio.telemetry import HandlerFailed
from liftbridge_aio.transactions.core.transaction import Phase
from liftbridge_aio.transactions.sender import Sender

from .acks_store import AcksStore
from .core.ack_window import AckWindow
from .core.attempt import AttemptState
from .core.committed_window import CommittedWindow
from .core.moved_message import hide_headers, is_filler
from .core.tier_clock import TierClock
from .delivery import Delivery, PartitionShare
from .giving_up import GivingUp
from .partitions import Partitions, ReadFrom, Spawn
from .plan import QueuePlan
from .statistics import QueueStatistics, partition_statistics
from .transactions import DeliveryTransaction
from .waiters import Waiters

if TYPE_CHECKING:
    from .leases import Leases

logger = logging.getLogger("liftbridge_aio.queue")

_IN_FLIGHT: Final = AttemptState.IN_FLIGHT  # members are slow to look up

_RETRY_AFTER: Final = 0.5
"""Seconds before a message is redelivered whose attempt could not be stored."""


class Dispatcher:
    """Delivers messages of the partitions that a member owns, and applies the answers.

    `next_ready` chooses the next delivery without waiting: first redeliveries, then new messages of
    the partition whose turn it is.

    Args:
        plan: the arguments of the queue.
        readers: the readers of the member, one per partition.
        store: stores acks.
        sender: sends the messages and acks of transactions.
        giving_up: dead-letters messages, or moves them to retry streams.
        reporter: reports failures to the hook.
        spawn: runs a task in the background.
        read_from: moves the reader of a partition to another offset.
    """

    def __init__(
        self,
        plan: QueuePlan,
        readers: GroupReaders,
        store: AcksStore,
        sender: Sender,
        giving_up: GivingUp,
        reporter: Reporter,
        spawn: Spawn,
        read_from: ReadFrom,
    ) -> None:
        self._group = plan.group
        self._sample = plan.options.sample
        self._backs_off = plan.options.backoff is not None
        self._stores_acks = plan.stores_acks
        self._timeout = plan.timeout
        self._sender = sender
        self._readers = readers
        self._giving_up = giving_up
        self._reporter = reporter
        self._spawn = spawn
        self._time = asyncio.get_running_loop().time
        self._is_committed = plan.make_visibility is not None
        self.waiters = Waiters()
        self.partitions = Partitions(
            plan,
            readers,
            store,
            sender,
            giving_up,
            reporter,
            spawn,
            read_from,
            answers=self,
            ready=self._has_ready,
            stop=self.stop,
        )
        self._shares = self.partitions.shares
        self._suspects = self.partitions.suspects
        # State
        self._current: PartitionShare | None = None
        """The partition whose new messages are delivered; changes when its reader has no more."""
        self._decoder: Decoder | None = None
        """The decoder of `_current`, if messages are read committed: it knows their positions."""
        self.leases: Leases | None = None
        """Leases to and from other members, while they run; None without `nats`."""
        self._has_redelivery = False
        """True if a window may have a redelivery; False once all were searched in vain."""
        self.prepared: deque[Delivery] = deque()
        """Deliveries that are in flight, and not taken by a task yet: suspects whose attempt is
        stored, and messages leased from other members."""
        self.error: BaseException | None = None
        """The error that has stopped the queue, until one task has raised it."""
        self.is_stopped = False
        """True once nothing more is delivered: after `stop`."""
        self._delivered = self._redelivered = self._acked = self._nacked = self._late = 0
        """Counts since the queue was entered, see `QueueStatistics`."""

    def statistics(self) -> QueueStatistics:
        """Return the counts."""
        partitions, leases = self.partitions, self.leases
        return QueueStatistics(
            self._delivered,
            self._redelivered,
            self._acked,
            self._nacked,
            partitions.expired,
            partitions.given_up,
            self._giving_up.stored,
            self._giving_up.lost,
            self._giving_up.moved,
            self._late + (0 if leases is None else leases.borrower.late),
            partitions.flow.backoff_level,
            0 if leases is None else leases.lender.leased,
            0 if leases is None else leases.borrower.borrowed,
            partition_statistics(self._shares),
        )

    # Deliveries

    def next_ready(self) -> Delivery | None:
        """Return the next delivery; None if there is none now."""
        if self.is_stopped:
            self._raise_error()
            return None
        now = self._time()
        while True:
            # Redeliveries first: they are older than everything that is not read yet.
            delivery = self._next_redelivery(now) if self.prepared or self._has_redelivery else None
            if delivery is None:
                delivery = self._next_new(now)
            if delivery is not None:
                return delivery
            if not self.partitions.shift_capacity():
                break  # no partition with messages waits for capacity of an idle one
        if self.leases is not None:
            self.leases.ask_soon()
        return None

    def _next_new(self, now: float) -> Delivery | None:
        merge = self._readers.merge
        while True:
            share = self._current
            if merge.ready and share is not None and share.window is not None:
                delivery = self._next_of(share, share.window, merge.ready, now)
                if delivery is not None:
                    return delivery
            if not self.next_reader():
                return None

    @property
    def has_more(self) -> bool:
        """True if there may be a delivery now."""
        return self._has_redelivery or bool(self.prepared) or self._readers.merge.has_messages

    def _next_of(
        self,
        share: PartitionShare,
        window: AckWindow[Delivery],
        ready: deque[Message],
        now: float,
    ) -> Delivery | None:
        """Return the next delivery of a partition's new messages; None if there is none now."""
        suspects = self._suspects
        while window.wants_more and not (
            (window.suspects or suspects.is_active) and suspects.must_wait(window)
        ):
            if not ready:
                return None
            if share.tier is not None and self._is_early(share, share.tier, ready[0]):
                return None
            is_suspect = window.suspects > 0
            if self._decoder is None:
                message = ready.popleft()
            else:
                message = _next_committed(self._decoder, window)
            if self._readers.delivered is not None:
                self._readers.delivered(message)
            if (share.tier is not None and is_filler(message)) or (
                self._sample < 1 and random.random() >= self._sample  # noqa: S311 - no secret
            ):
                window.skip(message)  # settled without a delivery
                continue
            delivery = window.take(message, now)
            if delivery is None:
                if window.given_up:
                    self.partitions.advance(share, window)
            elif self._begin_delivery(share, delivery, is_suspect=is_suspect):
                return delivery
        self.partitions.pause(share)
        return None

    def _is_early(self, share: PartitionShare, tier: TierClock, message: Message) -> bool:
        """Return True if a message of a retry stream, and so all after it, are not due yet."""
        hide_headers(message)
        early = tier.remaining(message, self._time(), time.time())
        if early > 0:
            self.partitions.pause_until(share, early)
        return early > 0

    def _raise_error(self) -> None:
        error, self.error = self.error, None
        if error is not None:
            raise error

    def next_reader(self) -> bool:
        """Make the next reader with messages the current one; return False if there is none.

        A partition is claimed when its first message arrives.
        """
        merge = self._readers.merge
        while True:
            reader = merge.next_in_line()
            if reader is None:
                self._current = None
                return False
            place = StreamPartition(reader.plan.stream, reader.plan.partition)
            share = self._shares.get(place)
            if share is None:
                self.partitions.claim(place, reader.decoder.next_offset or 0)
                continue
            if share.window is None:  # the claim is still under way
                self.partitions.pause(share)
                continue
            merge.ready = reader.decoder.ready
            self._current = share
            if self._is_committed:
                self._decoder = reader.decoder
            return True

    def _next_redelivery(self, now: float) -> Delivery | None:
        while self.prepared:
            delivery = self.prepared.popleft()
            if delivery.state is _IN_FLIGHT:
                return delivery
        for share in self._shares.values():
            window = share.window
            while window is not None and window.has_ready and not self._suspects.must_wait(window):
                is_suspect = window.suspects > 0
                found = window.take_redelivery(now)
                if window.given_up:
                    self.partitions.advance(share, window)
                if found is None:
                    break
                if self._begin_delivery(share, found, is_suspect=is_suspect):
                    return found
        self._has_redelivery = False
        return None

    def _has_ready(self) -> None:
        self._has_redelivery = True
        self.waiters.wake()

    def _begin_delivery(
        self, share: PartitionShare, delivery: Delivery, *, is_suspect: bool
    ) -> bool:
        """Count a delivery; return False if its attempt must be stored first, as of a suspect."""
        if is_suspect:
            self.partitions.hold_suspect(delivery)
        self._delivered += 1
        waiters = self.waiters  # another task, as there may be more messages
        if waiters.waiting:
            waiters.wake()
        elif waiters.bell is not None:
            waiters.bell.ring()
        if delivery.attempt > 1:
            self._redelivered += 1
        if self._backs_off:
            self.partitions.flow.delivered(share.place, self._time())
        if delivery.deadline < self.partitions.timer_at:
            self.partitions.arm(delivery.deadline)
        if not is_suspect or share.window is None:
            return True
        window = share.window
        window.changes += 1
        self._spawn(lambda: self._record(share, window, delivery), "attempt")
        return False

    async def _record(
        self, share: PartitionShare, window: AckWindow[Delivery], delivery: Delivery
    ) -> None:
        """Store the attempt of a suspect, then deliver it: it may end the process.

        Acks of other partitions are stored first. Otherwise the suspects that were acked before
        would be blamed as well.
        """
        try:
            for each in tuple(self._shares.values()):
                if each is not share and each.drained is None:
                    await self.partitions.acks.save(each)
            await self.partitions.acks.save(share)
        except LiftbridgeError:
            self.partitions.retract(delivery, window, _RETRY_AFTER)
            return
        if delivery.state is _IN_FLIGHT:
            self.partitions.release_suspect(delivery, window)
            self.prepared.append(delivery)
            self.waiters.wake()

    async def next(self) -> Delivery | None:
        """Return the next delivery; None at the end."""
        while True:
            delivery = self.next_ready()
            if delivery is not None:
                return delivery
            if self.is_finished:
                return None
            await self.waiters.wait()

    @property
    def is_finished(self) -> bool:
        """True if there will be no more deliveries."""
        return self.is_stopped or self._readers.merge.is_finished

    @property
    def is_full(self) -> bool:
        """True if nothing is delivered before a delivery is answered."""
        windows = self.partitions.windows().values()
        return bool(windows) and all(window.in_flight >= window.capacity for window in windows)

    def share(self, bell: Workers) -> None:
        """Wake the workers of `run` when there may be a delivery, until `unshare`."""
        self.waiters.share(bell)

    def unshare(self) -> None:
        """Wake the workers no more."""
        self.waiters.unshare()

    def ring(self) -> None:
        """Wake a task: a reader has messages, or has ended. The readers' `Bell`."""
        if self._readers.merge.is_finished:
            self.waiters.wake_all()
        else:
            self.waiters.wake()

    # Answers

    is_remote = False

    def ack(self, delivery: Delivery, *, holds_key: bool = False) -> None:
        """Implement `Answers`; `holds_key` as for `AckWindow.ack`."""
        share = delivery.share
        window = share.window
        if window is None or delivery.state is not _IN_FLIGHT:
            window = self._window(delivery)  # counts a late answer; the window raises
        window.ack(delivery, holds_key=holds_key)
        self._acked += 1
        self._giving_up.in_sequence = 0
        # Most acks change nothing else, so the common case ends here.
        if (
            share.is_paused
            or window.ready
            or self._backs_off
            or share.drained is not None
            or self._suspects.is_awaited
        ):
            self.partitions.answered(share, window, Outcome.FINISHED)

    def nack(
        self,
        delivery: Delivery,
        delay: float | None,
        error: BaseException | None,
        *,
        backoff: bool,
    ) -> None:
        """Implement `Answers`."""
        window = self._window(delivery)
        window.nack(delivery, self._time(), delay, error)
        self._nacked += 1
        outcome = Outcome.REQUEUED if backoff else Outcome.REQUEUED_WITHOUT_BACKOFF
        self.partitions.answered(delivery.share, window, outcome)

    def reject(self, delivery: Delivery, error: BaseException | None) -> None:
        """Implement `Answers`."""
        window = self._window(delivery)
        window.reject(delivery, error)
        self.partitions.answered(delivery.share, window, Outcome.REQUEUED_WITHOUT_BACKOFF)

    def extend(self, delivery: Delivery) -> None:
        """Implement `Answers`."""
        self._window(delivery).extend(delivery, self._time())

    def failed(self, delivery: Delivery, error: BaseException) -> None:
        """Implement `Answers`."""
        if not isinstance(error, Nack | Reject):
            stream, partition, offset = delivery.stream, delivery.partition, delivery.offset
            self._reporter.handler_failed(
                HandlerFailed(self._group, stream, partition, offset, error)
            )
            logger.warning("a handler failed with %s: %r", repr(delivery), error, exc_info=error)
        if delivery.state is not _IN_FLIGHT:
            return  # answered by the handler before it raised, or expired
        is_undecodable = (
            isinstance(error, UndecodableMessage) and error.received is delivery.message
        )
        answers = delivery.answers
        if is_undecodable or isinstance(error, Reject):
            answers.reject(delivery, error)
        elif isinstance(error, Nack):
            answers.nack(delivery, error.delay, error, backoff=error.backoff)
        else:
            answers.nack(delivery, None, error, backoff=True)

    def transaction(self, delivery: Delivery) -> DeliveryTransaction:
        """Implement `Answers`."""
        text = ""
        if not self._stores_acks:
            text = "acks of a queue without group and durable are not stored, so they cannot commit"
        elif self.leases is not None:
            text = "with nats, only owners of partitions store acks, so deliveries cannot commit"
        if text:
            raise UsageError(text, stream=delivery.stream, partition=delivery.partition)
        share, acks = delivery.share, self.partitions.acks
        producers, timeout = share.producers, self._timeout
        return DeliveryTransaction(self._sender, producers, delivery, self, acks, timeout)

    def ack_by_commit(self, transaction: DeliveryTransaction) -> None:
        """Implement `Owner`."""
        committing = transaction.delivery.share.producers.committing
        committing.add(transaction)
        try:
            self.ack(transaction.delivery, holds_key=True)
        except BaseException:
            committing.discard(transaction)
            raise

    def ended(self, transaction: DeliveryTransaction) -> None:
        """Implement `Owner`."""
        delivery = transaction.delivery
        producers, window = delivery.share.producers, delivery.share.window
        if transaction not in producers.committing or window is None:
            return
        if transaction.phase not in {Phase.COMMITTED, Phase.ABORTED}:
            if transaction not in producers.in_doubt:
                producers.in_doubt.add(transaction)
                logger.warning("the commit of %s is in doubt, and is retried", repr(delivery))
                self._spawn(lambda: self.partitions.finish(transaction), "commit")
            return
        producers.committing.discard(transaction)
        producers.in_doubt.discard(transaction)
        window.release_key(delivery)
        self.partitions.advance(delivery.share, window)

    def _window(self, delivery: Delivery) -> AckWindow[Delivery]:
        window = delivery.share.window
        if delivery.state is AttemptState.EXPIRED or window is None:
            self._late += 1
        if window is None:
            raise AssertionError("a delivery needs a claimed partition")
        return window

    async def confirmed(self, delivery: Delivery, *, stored: bool) -> None:
        """Implement `Answers`."""
        if stored and delivery.state is AttemptState.ACKED:
            await self.partitions.acks.save(delivery.share)

    # The end

    def stop(self, error: BaseException | None = None) -> None:
        """Deliver nothing more; answers still count."""
        if not self.is_stopped:
            self.is_stopped, self.error = True, error
        self.waiters.wake_all()

    def close(self) -> None:
        """Deliver nothing more, and forget all partitions."""
        self.stop()
        self.partitions.close()


def _next_committed(decoder: Decoder, window: AckWindow[Delivery]) -> Message:
    """Take the next message of a committed reading, and pass its position to the window."""
    position = decoder.next_offset
    message = decoder.ready.popleft()
    if isinstance(window, CommittedWindow) and position is not None:
        window.move_to(position, is_last=decoder.next_offset != position)
    return message
