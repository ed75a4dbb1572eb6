"""The partitions of a member: claims and releases, capacities, and the timer."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from math import inf
from typing import Final, TypeAlias

from liftbridge_aio._core.arguments import INT64_MAX
from liftbridge_aio._core.ready_flow import FlowSettings, Level, Outcome, ReadyFlow
from liftbridge_aio.errors import LiftbridgeError
from liftbridge_aio.groups.group_readers import GroupReaders
from liftbridge_aio.model import Message, StreamPartition
from liftbridge_aio.net.reporter import Reporter
from liftbridge_aio.transactions.sender import Sender

from .acks_store import AcksStore
from .acks_writer import AcksWriter
from .core.ack_window import AckWindow
from .core.attempt import AttemptState
from .core.committed_window import CommittedWindow
from .core.moved_message import attempts_of
from .core.suspects import Suspects
from .core.tier_clock import TierClock
from .delivery import Answers, Delivery, PartitionShare
from .errors import TooManyDeadLetters
from .giving_up import GivingUp
from .plan import QueuePlan
from .retry_tiers import tier_stream
from .transactions import DeliveryTransaction, PartitionProducers

logger = logging.getLogger("liftbridge_aio.queue")

_FIRST_DELAY: Final = 0.1
_LONGEST_DELAY: Final = 5.0
"""Seconds between two attempts to finish a commit in doubt; doubled after each."""

Spawn: TypeAlias = Callable[[Callable[[], Awaitable[None]], str], None]
"""Runs a named task in the background."""
MakeDelivery: TypeAlias = Callable[[Message, Answers, PartitionShare], Delivery]
ReadFrom: TypeAlias = Callable[[StreamPartition, int], None]
"""Moves the reader of a partition to another offset, if this member still owns the partition."""


class Partitions:
    """The partitions of a member, each with its ack window.

    `claim` pauses a new partition until its stored acks are loaded. Then its window decides when
    each message is delivered. `release` waits for answers and stores the last acks.

    Args:
        plan: the arguments of the queue.
        readers: the readers of the member, one per partition.
        store: stores acks.
        sender: sends the messages and acks of transactions.
        giving_up: dead-letters messages, or moves them to retry streams.
        reporter: reports failures to the hook.
        spawn: runs a task in the background.
        read_from: moves the reader of a partition to another offset.
        answers: applies the answers of deliveries.
        ready: called when there may be a redelivery.
        stop: called with the error that stops the queue.
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
        *,
        answers: Answers,
        ready: Callable[[], None],
        stop: Callable[[BaseException], None],
    ) -> None:
        self._plan = plan
        self._window_settings = plan.window_settings()
        self._tiers = {tier_stream(plan.stream, plan.group, each): each for each in plan.tiers}
        self._readers = readers
        self._giving_up = giving_up
        self._spawn = spawn
        self._read_from = read_from
        self._answers = answers
        self._ready = ready
        self._stop = stop
        self._loop = asyncio.get_running_loop()
        self._time = self._loop.time
        self._backs_off = plan.options.backoff is not None
        self.make_delivery: MakeDelivery = Delivery
        """Makes deliveries; replaced for decoded values, before the queue is entered."""
        # State
        self.shares: dict[StreamPartition, PartitionShare] = {}
        """The partitions from `claim` until they are released or lost."""
        self.acks = AcksWriter(plan.group, store, sender, reporter, self.shares, self._lost)
        self.suspects: Suspects[Delivery] = Suspects(lambda: self.windows().values())
        self.flow: ReadyFlow[StreamPartition] = ReadyFlow(
            _flow_settings(plan), self._choose, self._time(), self._in_flight
        )
        """Divides `max_in_flight` among the partitions, and slows down after failures."""
        self.max_in_flight = plan.options.max_in_flight
        """The current limit; changed by `limit`."""
        self.expired = self.given_up = 0
        """Counts since the queue was entered, see `QueueStatistics`."""
        self._timer: asyncio.TimerHandle | None = None
        """Calls `_tick` at `timer_at`; None if that is infinite."""
        self.timer_at = inf
        """When the timer fires: the earliest deadline, due time or change of capacity."""

    def windows(self) -> dict[StreamPartition, AckWindow[Delivery]]:
        """Return the windows of the claimed partitions."""
        return {
            place: share.window for place, share in self.shares.items() if share.window is not None
        }

    def is_tier(self, stream: str) -> bool:
        """Return True if a stream is a retry stream of the queue."""
        return stream in self._tiers

    # Claims and releases

    def claim(self, place: StreamPartition, first: int) -> None:
        """Pause a new partition until its stored acks are loaded.

        Args:
            place: the partition.
            first: the position of the first message that was read.
        """
        share = self.shares[place] = PartitionShare(place, PartitionProducers())
        # With a gap in the log, the reader has begun before the first message that it found.
        asked_for = self._readers.position(place)
        begin = first if asked_for is None else asked_for
        self.pause(share)
        name = f"claim:{place.stream}:{place.partition}"
        self._spawn(lambda: self._claimed(share, first, begin), name)

    async def _claimed(self, share: PartitionShare, first: int, begin: int) -> None:
        place, plan = share.place, self._plan
        snapshot, in_order, _ = await self.acks.claim(share, first)
        if self.shares.get(place) is not share:
            return  # released since
        if begin > snapshot.base:
            # The reader began after unsettled messages.
            self._lost(share, snapshot.base)
            return
        make_window = AckWindow if plan.make_visibility is None else CommittedWindow
        settings = self._window_settings
        if (tier := self._tiers.get(place.stream)) is not None:
            share.tier = TierClock(tier)
            settings = replace(settings, attempts_of=attempts_of)
        share.window = make_window(
            settings,
            lambda message: self.make_delivery(message, self._answers, share),
            snapshot,
            0 if in_order else plan.options.max_in_flight,
        )
        # No limit of its own: only `max_in_flight` of the queue counts.
        self._set_levels(self.flow.connected(place, INT64_MAX, self._time()))
        self._resume(share)

    def _lost(self, share: PartitionShare, base: int) -> None:
        """Forget a partition, and reread it from its first unsettled message."""
        self._forget(share)
        self._read_from(share.place, base)

    async def finish(self, transaction: DeliveryTransaction) -> None:
        """Retry a commit in doubt until it is certain, or another member owns the partition."""
        share = transaction.delivery.share
        delay = _FIRST_DELAY
        while transaction in share.producers.in_doubt and self.shares.get(share.place) is share:
            try:
                await transaction.resume()
            except LiftbridgeError as error:
                logger.debug("%r is still in doubt: %s", transaction, error)
                await asyncio.sleep(delay)
                delay = min(delay * 2, _LONGEST_DELAY)

    async def release(
        self, places: Iterable[StreamPartition], drain_timeout: float, *, waits: bool = True
    ) -> int:
        """Stop delivering from partitions, wait for answers, and store the last acks.

        Args:
            places: the partitions.
            drain_timeout: seconds to wait for answers, dead letters and commits of transactions.
            waits: False does not wait for answers.

        Returns:
            The number of transactions in doubt, which the next owner finishes.
        """
        shares = [share for place in places if (share := self.shares.get(place)) is not None]
        for share in shares:
            if share.window is not None:
                share.window.stop()
                share.drained, share.waits = asyncio.Event(), waits
                share.check_drained()
                self._set_levels(self.flow.closing(share.place, self._time()))
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(drain_timeout):
                    for share in shares:
                        if share.drained is not None:
                            await share.drained.wait()
            # Also after the timeout: the next owner redelivers the unanswered messages only.
            for share in shares:
                with suppress(LiftbridgeError):  # reported
                    await self.acks.save(share, last=True)
        finally:
            for share in shares:
                self._forget(share)
        left = sum(len(share.producers.committing) for share in shares)
        if left:
            logger.warning("%d transactions are in doubt; the next owner finishes them", left)
        return left

    def _forget(self, share: PartitionShare) -> None:
        if self.shares.get(share.place) is share:
            del self.shares[share.place]
            self._set_levels(self.flow.closed(share.place, self._time()))
            if share.is_paused:
                self._resume(share)
        if share.window is not None:
            share.window.drop()
            self.suspects.cancel_turn(share.window)
        self._end_turn()

    def close(self) -> None:
        """Stop the timer and forget all partitions."""
        for share in tuple(self.shares.values()):
            self._forget(share)
        self.arm(inf)

    def pause(self, share: PartitionShare) -> None:
        """Pause the reader of a partition until `advance` resumes it."""
        if self.shares.get(share.place) is share:
            share.is_paused = True
            self._readers.pause([share.place])

    def _resume(self, share: PartitionShare) -> None:
        share.is_paused = False
        self._readers.resume([share.place])

    def pause_until(self, share: PartitionShare, seconds: float) -> None:
        """Pause the reader of a partition for some seconds."""
        self.pause(share)
        share.resumes_at = self._time() + seconds
        self._arm_before(share.resumes_at)

    # Suspects

    def hold_suspect(self, suspect: Delivery) -> None:
        """Begin the turn of a suspect; its `ack_wait` begins with `release_suspect`."""
        suspect.deadline = inf
        self.suspects.begin_turn(suspect)

    def release_suspect(self, suspect: Delivery, window: AckWindow[Delivery]) -> None:
        """Begin the `ack_wait` of a suspect, whose attempt is stored now."""
        window.extend(suspect, self._time())
        self._arm_before(suspect.deadline)

    def retract(self, delivery: Delivery, window: AckWindow[Delivery], delay: float) -> None:
        """Undo a delivery that no worker holds: redeliver it after a delay, as the same attempt."""
        window.retract(delivery, self._time(), delay)
        self._arm_before(window.next_at())
        self.advance(delivery.share, window)

    # Progress

    def answered(
        self, share: PartitionShare, window: AckWindow[Delivery], outcome: Outcome
    ) -> None:
        """Continue after a delivery of a partition was answered."""
        if self._backs_off:
            self._adapt(share, outcome)
        if outcome is not Outcome.FINISHED:
            self._arm_before(window.next_at())
        self.advance(share, window)

    def _adapt(self, share: PartitionShare, outcome: Outcome) -> None:
        levels = self.flow.answered(share.place, outcome, self._time())
        if levels or self.flow.is_backing_off:
            self._set_levels(levels)

    def advance(self, share: PartitionShare, window: AckWindow[Delivery]) -> None:
        """Make progress: dead-letter, redeliver, or resume reading."""
        if window.failure is not None:
            self._stop(window.failure)  # `retry` failed
        if window.given_up:
            self._give_up(share, window)
        self._end_turn()
        if share.drained is not None:
            share.check_drained()
            return
        if window.has_ready:
            self._ready()
        elif share.is_paused and window.wants_more and self._time() >= share.resumes_at:
            self._resume(share)
        if self.flow.is_short:
            self._ready()  # `shift_capacity` may find room

    def _end_turn(self) -> None:
        """Let partitions continue that have waited for a suspect."""
        if self.suspects.end_turn():
            for share in tuple(self.shares.values()):
                if share.window is not None:
                    self.advance(share, share.window)

    def _give_up(self, share: PartitionShare, window: AckWindow[Delivery]) -> None:
        while window.given_up:
            delivery = window.given_up.popleft()
            try:
                self._giving_up.count(delivery)
            except TooManyDeadLetters as error:
                self._stop(error)
                return
            share.giving_up += 1
            self._spawn(partial(self._settle_failed, share, window, delivery), "give-up")

    async def _settle_failed(
        self, share: PartitionShare, window: AckWindow[Delivery], delivery: Delivery
    ) -> None:
        try:
            is_done = await self._giving_up.give_up(delivery)
        finally:
            share.giving_up -= 1
        if not is_done:
            window.wait_here(delivery)
            self._arm_before(window.next_at())
        elif delivery.state is AttemptState.GIVING_UP:
            window.give_up(delivery)
            if delivery.deadline == inf:
                self.given_up += 1
            self.acks.save_soon()
        self.advance(share, window)

    # Capacities

    def limit(self, max_in_flight: int) -> None:
        """Set the number of messages that may be in flight; 0 pauses."""
        self.max_in_flight = max_in_flight
        self._set_levels(self.flow.limit(max_in_flight, self._time()))

    def _set_levels(self, levels: Iterable[Level[StreamPartition]]) -> None:
        for place, level in levels:
            share = self.shares.get(place)
            if share is not None and share.window is not None and share.drained is None:
                share.window.capacity = level
                if not level:
                    self.suspects.cancel_turn(share.window)
                self.advance(share, share.window)
        self._arm_before(self._flow_at())

    def shift_capacity(self) -> bool:
        """Move capacity from idle partitions to those with messages, if it is short.

        Returns:
            True if a waiting partition may deliver now.
        """
        if not self.flow.is_short:
            return False
        waiting = [share for share in self.shares.values() if self._waits(share)]
        served = [share for share in waiting if self.flow.rdy(share.place)]
        unserved = len(waiting) - len(served)
        if not unserved:
            return False
        idle = [
            place
            for place, share in self.shares.items()
            if share not in served and self.flow.rdy(place) and not self._in_flight(place)
        ]
        levels = self.flow.pass_on(idle[:unserved], self._time())
        self._set_levels(levels)
        return any(level for _, level in levels)

    def _in_flight(self, place: StreamPartition) -> int:
        share = self.shares.get(place)
        return 0 if share is None or share.window is None else share.window.in_flight

    def _waits(self, share: PartitionShare) -> bool:
        """Return True if a partition has messages to deliver."""
        window = share.window
        if window is None or share.drained is not None:
            return False
        if window.ready:
            return True
        return share.is_paused and share.resumes_at <= self._time() and window.may_take

    def _choose(self, places: Sequence[StreamPartition]) -> StreamPartition:
        """Choose a partition for the next capacity, if possible one with messages."""
        waiting = [
            place
            for place in places
            if (share := self.shares.get(place)) is not None and self._waits(share)
        ]
        return random.choice(waiting or places)  # noqa: S311 - no secret

    def _flow_at(self) -> float:
        """Return when capacities change next: never while each partition has its share."""
        # Otherwise the timer would fire for nothing.
        needed = self.flow.backoff_level or self.flow.is_short
        return self.flow.next_at() if needed else inf

    # Time

    def arm(self, at: float) -> None:
        """Set the time of the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.timer_at = at
        if at < inf:
            self._timer = self._loop.call_at(at, self._tick)

    def _arm_before(self, at: float) -> None:
        if at < self.timer_at:
            self.arm(at)

    def _tick(self) -> None:
        now = self._time()
        self._timer, self.timer_at = None, inf
        for share in tuple(self.shares.values()):
            if share.window is not None:
                if expired := share.window.tick(now):
                    self._expire(share, expired)
                self.advance(share, share.window)
                self._arm_before(share.window.next_at())
                if share.resumes_at > now:
                    self._arm_before(share.resumes_at)
        if self._flow_at() <= now:
            self._set_levels(self.flow.tick(now))
        self._arm_before(self._flow_at())

    def _expire(self, share: PartitionShare, expired: list[Delivery]) -> None:
        self.expired += len(expired)
        more = f" and {len(expired) - 1} more" if len(expired) > 1 else ""
        # As text: a handler that keeps log records would keep the client alive.
        logger.warning("not answered in time: %s%s", repr(expired[0]), more)
        for delivery in expired:
            # A task is cancelled (`on_timeout`), and a loan to another member ends.
            if delivery.worker is not None:
                delivery.worker.cancel()
            if self._backs_off:
                self._adapt(share, Outcome.REQUEUED)


def _flow_settings(plan: QueuePlan) -> FlowSettings:
    backoff = plan.options.backoff
    if backoff is None:
        return FlowSettings(plan.options.max_in_flight, max_backoff=0.0, probe_first=False)
    initial = backoff.initial
    return FlowSettings(
        plan.options.max_in_flight,
        max_backoff=backoff.max,
        backoff=lambda level: initial * 2.0**level,
        probe_first=False,
    )
