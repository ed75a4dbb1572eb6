"""Hands out the messages of a queue, takes their answers, and stores what is settled."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from functools import partial
from math import inf
from typing import Final, TypeAlias

from liftbridge_aio._core.arguments import INT64_MAX
from liftbridge_aio.errors import LiftbridgeError
from liftbridge_aio.groups.group_readers import GroupReaders
from liftbridge_aio.model import Message, StreamPartition
from liftbridge_aio.net.reporter import Reporter
from liftbridge_aio.telemetry import CommitFailed, HandlerFailed

from .acks_store import AcksStore
from .core.ack_window import AckWindow, AttemptState
from .core.ready_flow import FlowSettings, Level, Outcome, ReadyFlow
from .delivery import Delivery, Nack, PartitionShare, Reject
from .errors import QueueTaken, TooManyDeadLetters
from .giving_up import GivingUp
from .plan import QueuePlan
from .statistics import PartitionStatistics, QueueStatistics

logger = logging.getLogger("liftbridge_aio.queue")

_IN_FLIGHT: Final = AttemptState.IN_FLIGHT  # members are slow to look up

Spawn: TypeAlias = Callable[[Callable[[], Awaitable[None]], str], None]
"""Runs a named task in the background."""

_RETRY_AFTER: Final = 0.5
"""Seconds after which a message is handed out again whose attempt could not be recorded."""


class Dispatcher:
    """Hands out messages of the partitions that a member reads, and takes their answers.

    Owns the windows, the timer, and the tasks that wait for a message.

    Args:
        plan: the arguments of the queue.
        readers: the readers of the member.
        store: stores acks.
        giving_up: does what is to be done with messages that are given up.
        reporter: reports failures to the hook.
        spawn: runs a task in the background.
        read_from: reads a partition from another offset, if it is still this member's.
    """

    def __init__(
        self,
        plan: QueuePlan,
        readers: GroupReaders,
        store: AcksStore,
        giving_up: GivingUp,
        reporter: Reporter,
        spawn: Spawn,
        read_from: Callable[[StreamPartition, int], None],
    ) -> None:
        self._plan = plan
        self._readers = readers
        self._store = store
        self._giving_up = giving_up
        self._reporter = reporter
        self._spawn = spawn
        self._read_from = read_from
        self._loop = asyncio.get_running_loop()
        self._time = self._loop.time
        self._flow: ReadyFlow[StreamPartition] = ReadyFlow(
            _flow_settings(plan), random.choice, self._time()
        )
        self._max_in_flight = plan.max_in_flight
        self._ack_wait = plan.window.ack_wait
        self._backs_off = plan.backoff is not None
        self._shares: dict[StreamPartition, PartitionShare] = {}
        self._current: PartitionShare | None = None
        """The partition of the messages in `merge.ready`."""
        self._again = False
        """True if a window may have something to hand out again."""
        self._suspect: Delivery | None = None
        """The last delivery that was handed out alone; see `AckWindow`."""
        self._next_alone: PartitionShare | None = None
        """The partition with the next suspect: the others wait until it is in flight."""
        self._is_waiting = False
        """True if a partition waits because a suspect must be alone."""
        self._recorded: deque[Delivery] = deque()
        """Deliveries whose attempt is stored, to be handed out."""
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = inf
        self._commit_now = asyncio.Event()
        self._in_sequence = 0
        """Messages that were given up since the last ack."""
        self.error: BaseException | None = None
        """What has stopped the queue."""
        self.is_stopped = False
        self._delivered = self._redelivered = self._acked = self._nacked = 0
        self._expired = self._given_up = self._late = 0

    def statistics(self) -> QueueStatistics:
        """Return the counts."""
        partitions = tuple(
            PartitionStatistics(
                *place,
                share.window.in_flight,
                share.window.unsettled,
                share.window.span,
                share.window.base,
            )
            for place, share in sorted(self._shares.items())
            if share.window is not None
        )
        return QueueStatistics(
            self._delivered,
            self._redelivered,
            self._acked,
            self._nacked,
            self._expired,
            self._given_up,
            self._giving_up.stored,
            self._late,
            self._flow.backoff_level,
            partitions,
        )

    def windows(self) -> dict[StreamPartition, AckWindow[Delivery]]:
        """Return the windows of the claimed partitions."""
        return {
            place: share.window for place, share in self._shares.items() if share.window is not None
        }

    # Handing out

    def next_ready(self) -> Delivery | None:
        """Return the next delivery; None if there is none now.

        Raises:
            LiftbridgeError: a partition cannot be read.
            TooManyDeadLetters: the limit of dead letters was reached.
        """
        if self.is_stopped:
            self._raise_error()
            return None
        now = self._time()
        if self._recorded or self._again:
            delivery = self._next_again(now)
            if delivery is not None:
                return delivery
        merge = self._readers.merge
        while True:
            share = self._current
            if merge.ready and share is not None and share.window is not None:
                delivery = self._next_of(share, share.window, merge.ready, now)
                if delivery is not None:
                    return delivery
            if not self._next_reader():
                return None

    def _next_of(
        self,
        share: PartitionShare,
        window: AckWindow[Delivery],
        ready: deque[Message],
        now: float,
    ) -> Delivery | None:
        """Return the next delivery of new messages; None if there is none now."""
        while window.wants_more and not self._must_wait(share, window):
            if not ready:
                return None
            is_suspect = window.suspects > 0
            message = ready.popleft()
            if self._readers.delivered is not None:
                self._readers.delivered(message)
            delivery = window.take(message, now)
            if delivery is None:
                if window.given_up:
                    self._give_up(share, window)
            elif self._handed_out(share, delivery, is_suspect=is_suspect):
                return delivery
        self._pause(share)
        return None

    def _raise_error(self) -> None:
        error, self.error = self.error, None
        if error is not None:
            raise error

    def _next_reader(self) -> bool:
        """Turn to the next reader with messages; return False if there is none."""
        merge = self._readers.merge
        while True:
            reader = merge.next_in_line()
            if reader is None:
                self._current = None
                return False
            place = StreamPartition(reader.plan.stream, reader.plan.partition)
            share = self._shares.get(place)
            if share is None:
                self._claim(place, reader.decoder.ready[0].offset)
                continue
            if share.window is None:
                self._pause(share)
                continue
            merge.ready = reader.decoder.ready
            self._current = share
            return True

    def _next_again(self, now: float) -> Delivery | None:
        while self._recorded:
            delivery = self._recorded.popleft()
            if delivery.state is AttemptState.IN_FLIGHT:
                return delivery
        for share in self._shares.values():
            window = share.window
            while window is not None and window.has_ready and not self._must_wait(share, window):
                is_suspect = window.suspects > 0
                found = window.take_again(now)
                if window.given_up:
                    self._give_up(share, window)
                if found is None:
                    break
                if self._handed_out(share, found, is_suspect=is_suspect):
                    return found
        self._again = False
        return None

    def _handed_out(self, share: PartitionShare, delivery: Delivery, *, is_suspect: bool) -> bool:
        """Count a delivery; return False if its attempt is to be stored before it is handed out."""
        self._delivered += 1
        if self._waiters:
            self.wake()  # another task, for what may follow
        if delivery.attempt > 1:
            self._redelivered += 1
        if self._backs_off:
            self._flow.delivered(share.place, delivery.deadline - self._ack_wait)
        if delivery.deadline < self._timer_at:
            self._arm(delivery.deadline)
        if not is_suspect or share.window is None:
            return True
        share.window.changes += 1
        self._suspect, self._next_alone = delivery, None
        self._spawn(lambda: self._record(share, delivery), "attempt")
        return False

    def _must_wait(self, share: PartitionShare, window: AckWindow[Delivery]) -> bool:
        """Return True if a suspect is in flight, or if one is next and others are in flight.

        A suspect is in flight alone, or it would be blamed for what another message does.
        """
        suspect, following = self._suspect, self._next_alone
        if suspect is None and following is None and not window.suspects:
            return False
        if (suspect is not None and suspect.state is _IN_FLIGHT) or (
            following is not None and following is not share
        ):
            self._is_waiting = True
        elif window.suspects and any(each.in_flight for each in self.windows().values()):
            self._next_alone, self._is_waiting = share, True
        else:
            return False
        return True

    async def _record(self, share: PartitionShare, delivery: Delivery) -> None:
        """Store an attempt before it is handed out, in case it ends the process.

        Acks of other partitions are stored first: the suspects before it must not be blamed for it.
        """
        try:
            for each in tuple(self._shares.values()):
                if each is not share and each.drained is None:
                    await self._save(each)
            await self._save(share)
        except LiftbridgeError as error:
            if delivery.state is AttemptState.IN_FLIGHT:
                self.nack(delivery, _RETRY_AFTER, error, backoff=False)
            return
        self._recorded.append(delivery)
        self._again = True
        self.wake()

    async def wait(self) -> None:
        """Wait until there may be a delivery, or an end. Cancelling loses nothing."""
        waiter = self._loop.create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self.wake()  # it was meant for somebody
            raise

    async def next(self) -> Delivery | None:
        """Return the next delivery; None at the end. Cancelling loses none.

        Raises:
            LiftbridgeError: a partition cannot be read.
        """
        while True:
            delivery = self.next_ready()
            if delivery is not None:
                return delivery
            if self.is_over:
                return None
            await self.wait()

    @property
    def is_over(self) -> bool:
        """True if nothing is handed out any more."""
        return self.is_stopped or self._readers.merge.is_finished

    def ring(self) -> None:
        """Wake a task, because a reader has messages or has ended; the `Bell` of the readers."""
        if self._readers.merge.is_finished:
            self.wake_all()
        else:
            self.wake()

    def wake(self) -> None:
        """Wake one task that waits."""
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def wake_all(self) -> None:
        """Wake all tasks that wait."""
        for _ in range(len(self._waiters)):
            self.wake()

    # Partitions

    def _claim(self, place: StreamPartition, first: int) -> None:
        """Hold a partition until it is known what is settled of it."""
        share = self._shares[place] = PartitionShare(place)
        asked_for = self._readers.position(place)
        begin = first if asked_for is None else asked_for
        self._pause(share)
        name = f"claim:{place.stream}:{place.partition}"
        self._spawn(lambda: self._claimed(share, first, begin), name)

    async def _claimed(self, share: PartitionShare, first: int, begin: int) -> None:
        place, plan = share.place, self._plan
        delay = 0.05
        while True:
            try:
                snapshot, in_order = await self._store.claim(place, first)
                break
            except LiftbridgeError as error:
                self._commit_failed(share, error)
            await asyncio.sleep(delay)
            delay = min(delay * 2, 2.0)
        if self._shares.get(place) is not share:
            return  # released meanwhile
        if begin > snapshot.base:
            # The reader began behind messages that are not settled.
            self._forget(share)
            self._read_from(place, snapshot.base)
            return
        share.window = AckWindow(
            plan.window,
            lambda message: Delivery(message, self, share),
            snapshot,
            0 if in_order else plan.max_in_flight,
        )
        self._set_levels(self._flow.connected(place, INT64_MAX, self._time()))
        self._resume(share)

    async def release(
        self, places: Iterable[StreamPartition], drain_timeout: float, *, waits: bool = True
    ) -> None:
        """Hand out nothing more of partitions, and store what is settled of them.

        Cancelling releases them without that.

        Args:
            places: the partitions.
            drain_timeout: seconds to wait for answers, and for messages that are being given up.
            waits: False does not wait for answers.
        """
        shares = [share for place in places if (share := self._shares.get(place)) is not None]
        for share in shares:
            if share.window is not None:
                share.window.stop()
                share.drained, share.waits = asyncio.Event(), waits
                self._check_drained(share)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(drain_timeout):
                    for share in shares:
                        if share.drained is not None:
                            await share.drained.wait()
            for share in shares:
                with suppress(LiftbridgeError):  # reported
                    await self._save(share, last=True)
        finally:
            for share in shares:
                self._forget(share)

    def _forget(self, share: PartitionShare) -> None:
        if self._shares.get(share.place) is share:
            del self._shares[share.place]
            self._set_levels(self._flow.closed(share.place, self._time()))
            if share.is_paused:
                self._resume(share)
        if self._current is share:
            self._current = None
        if share.window is not None:
            share.window.drop()
        if self._next_alone is share:
            self._next_alone = None
        for each in tuple(self._shares.values()):
            if self._is_waiting and each.window is not None:
                self._freed(each, each.window)

    def _pause(self, share: PartitionShare) -> None:
        share.is_paused = True
        self._readers.pause([share.place])

    def _resume(self, share: PartitionShare) -> None:
        share.is_paused = False
        if share.place in self._readers.partitions():
            self._readers.resume([share.place])

    def _check_drained(self, share: PartitionShare) -> None:
        window = share.window
        if share.drained is None or window is None or share.giving_up:
            return
        if not (share.waits and window.in_flight):
            share.drained.set()

    def limit(self, max_in_flight: int) -> None:
        """Set the number of messages that may be in flight; 0 pauses."""
        self._max_in_flight = max_in_flight
        self._set_levels(self._flow.limit(max_in_flight, self._time()))

    def _set_levels(self, levels: Iterable[Level[StreamPartition]]) -> None:
        for place, level in levels:
            share = self._shares.get(place)
            if share is not None and share.window is not None and share.drained is None:
                share.window.capacity = level
                if not level and self._next_alone is share:
                    self._next_alone = None
                self._freed(share, share.window)
        at = self._flow_at()
        if at < self._timer_at:
            self._arm(at)

    def _flow_at(self) -> float:
        """Return when the flow has something to do; never while every partition has its share."""
        needed = self._flow.backoff_level or len(self._shares) > self._max_in_flight
        return self._flow.next_at() if needed else inf

    # Answers

    def ack(self, delivery: Delivery) -> None:
        """See `Answers`."""
        share = delivery.share
        window = share.window
        if window is None or delivery.state is not _IN_FLIGHT:
            window = self._window(delivery)
        window.ack(delivery)
        self._acked += 1
        if self._in_sequence:
            self._in_sequence = 0
        if self._backs_off:
            self._answered(share, Outcome.FINISHED)
        if share.is_paused or window.has_ready or share.drained is not None or self._is_waiting:
            self._freed(share, window)

    def nack(
        self,
        delivery: Delivery,
        delay: float | None,
        error: BaseException | None,
        *,
        backoff: bool,
    ) -> None:
        """See `Answers`."""
        window = self._window(delivery)
        window.nack(delivery, self._time(), delay, error)
        self._nacked += 1
        self._failed(delivery.share, window, backoff=backoff)

    def reject(self, delivery: Delivery, error: BaseException | None) -> None:
        """See `Answers`."""
        window = self._window(delivery)
        window.reject(delivery, error)
        self._failed(delivery.share, window, backoff=False)

    def extend(self, delivery: Delivery) -> None:
        """See `Answers`."""
        self._window(delivery).extend(delivery, self._time())

    def failed(self, delivery: Delivery, error: BaseException) -> None:
        """See `Answers`."""
        if not isinstance(error, Nack | Reject):
            stream, partition, offset = delivery.stream, delivery.partition, delivery.offset
            group = self._plan.group
            self._reporter.handler_failed(HandlerFailed(group, stream, partition, offset, error))
            logger.warning("a handler failed with %r: %r", delivery, error, exc_info=error)
        if delivery.state is not AttemptState.IN_FLIGHT:
            return
        if isinstance(error, Reject):
            self.reject(delivery, error)
        elif isinstance(error, Nack):
            self.nack(delivery, error.delay, error, backoff=error.backoff)
        else:
            self.nack(delivery, None, error, backoff=True)

    def _window(self, delivery: Delivery) -> AckWindow[Delivery]:
        window = delivery.share.window
        if delivery.state is AttemptState.EXPIRED or window is None:
            self._late += 1
        if window is None:
            text = "no delivery is made before its partition is claimed"
            raise AssertionError(text)
        return window

    def _failed(self, share: PartitionShare, window: AckWindow[Delivery], *, backoff: bool) -> None:
        """Go on after a message was not acked."""
        if window.given_up:
            self._give_up(share, window)
        if self._backs_off:
            self._answered(share, Outcome.REQUEUED if backoff else Outcome.REQUEUED_WITHOUT_BACKOFF)
        at = window.next_at()
        if at < self._timer_at:
            self._arm(at)
        self._freed(share, window)

    def _answered(self, share: PartitionShare, outcome: Outcome) -> None:
        levels = self._flow.answered(share.place, outcome, self._time())
        if levels or self._flow.is_backing_off:
            self._set_levels(levels)

    def _freed(self, share: PartitionShare, window: AckWindow[Delivery]) -> None:
        """Go on where a full window has kept messages back."""
        if self._suspect is not None and self._suspect.state is not AttemptState.IN_FLIGHT:
            self._suspect = None
        if self._is_waiting and self._suspect is None:
            self._is_waiting = False
            for each in tuple(self._shares.values()):
                if each is not share and each.window is not None:
                    self._freed(each, each.window)
        if share.drained is not None:
            self._check_drained(share)
        elif window.has_ready:
            self._again = True
            self.wake()
        elif share.is_paused and window.wants_more:
            self._resume(share)

    # Time

    def _arm(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_at = at
        if at < inf:
            self._timer = self._loop.call_at(at, self._tick)

    def _tick(self) -> None:
        now = self._time()
        self._timer, self._timer_at = None, inf
        for share in tuple(self._shares.values()):
            window = share.window
            if window is None:
                continue
            for delivery in window.tick(now):
                self._expire(share, delivery)
            if window.given_up:
                self._give_up(share, window)
            self._freed(share, window)
        if self._flow_at() <= now:
            self._set_levels(self._flow.tick(now))
        windows = self.windows().values()
        at = min(self._flow_at(), min((window.next_at() for window in windows), default=inf))
        if at < self._timer_at:
            self._arm(at)

    def _expire(self, share: PartitionShare, delivery: Delivery) -> None:
        self._expired += 1
        logger.warning("%r was not answered in time", delivery)
        if self._backs_off:
            self._answered(share, Outcome.REQUEUED)
        if delivery.worker is not None:
            delivery.worker.cancel()

    # Giving up

    def _give_up(self, share: PartitionShare, window: AckWindow[Delivery]) -> None:
        limit = self._plan.dead_letter.limit if self._plan.dead_letter is not None else None
        while window.given_up and not self.is_stopped:
            delivery = window.given_up.popleft()
            if limit is not None and self._in_sequence >= limit:
                text = f"{limit} messages were given up without one that was acked between them"
                error = TooManyDeadLetters(text)
                error.at(delivery.stream, delivery.partition, delivery.offset)
                error.__cause__ = delivery.error
                self.stop(error)
                return
            self._in_sequence += 1
            share.giving_up += 1
            self._spawn(partial(self._given, share, window, delivery), "give-up")

    async def _given(
        self, share: PartitionShare, window: AckWindow[Delivery], delivery: Delivery
    ) -> None:
        try:
            await self._giving_up.give_up(delivery)
        finally:
            share.giving_up -= 1
        if delivery.state is AttemptState.GIVING_UP:
            window.give_up(delivery)
            self._given_up += 1
            self._commit_now.set()
        self._freed(share, window)

    # Storing

    async def run_commits(self) -> None:
        """Store what is settled, every `commit_interval`. Cancelling ends it."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._plan.commit_interval):
                    await self._commit_now.wait()
            self._commit_now.clear()
            for share in tuple(self._shares.values()):
                if share.window is not None and share.window.changes and share.drained is None:
                    with suppress(LiftbridgeError):  # reported, and tried again
                        await self._save(share)

    async def committed(self, delivery: Delivery) -> None:
        """See `Answers`."""
        if delivery.state is AttemptState.ACKED:
            await self._save(delivery.share)

    async def _save(self, share: PartitionShare, *, last: bool = False) -> None:
        """Store what is settled of a partition.

        Raises:
            LiftbridgeError: it could not be stored; that was reported.
        """
        async with share.saving:
            window = share.window
            if window is None or not (window.changes or last):
                return
            if self._shares.get(share.place) is not share:
                raise QueueTaken("the partition was released", **share.place._asdict())
            snapshot = window.snapshot(last=last)
            if snapshot is None:
                return
            try:
                await self._store.save(share.place, snapshot, last=last)
            except LiftbridgeError as error:
                window.changes += 1
                is_released = share.drained is not None
                if not (is_released and isinstance(error, QueueTaken)):
                    self._commit_failed(share, error)
                if isinstance(error, QueueTaken) and not is_released:
                    self._forget(share)
                    self._read_from(share.place, snapshot.base)
                raise

    def _commit_failed(self, share: PartitionShare, error: LiftbridgeError) -> None:
        base = None if share.window is None else share.window.base
        event = CommitFailed(self._plan.group, *share.place, -1 if base is None else base, error)
        self._reporter.commit_failed(event)
        logger.debug("acks of %s/%d were not stored: %s", *share.place, error)

    # The end

    def stop(self, error: BaseException | None = None) -> None:
        """Hand out nothing more; answers are still taken."""
        if not self.is_stopped:
            self.is_stopped, self.error = True, error
        self.wake_all()

    def close(self) -> None:
        """Stop the timer and forget all partitions."""
        self.stop()
        for share in tuple(self._shares.values()):
            self._forget(share)
        self._arm(inf)


def _flow_settings(plan: QueuePlan) -> FlowSettings:
    backoff = plan.backoff
    if backoff is None:
        return FlowSettings(plan.max_in_flight, max_backoff=0.0, probe_first=False)
    initial = backoff.initial
    return FlowSettings(
        plan.max_in_flight,
        max_backoff=backoff.max,
        backoff=lambda level: initial * 2.0**level,
        probe_first=False,
    )
