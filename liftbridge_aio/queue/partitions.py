"""The partitions that a member of a queue holds: claims, releases, capacities and times."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
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
"""Seconds between two attempts to finish a commit in doubt."""

Spawn: TypeAlias = Callable[[Callable[[], Awaitable[None]], str], None]
"""Runs a named task in the background."""
MakeDelivery: TypeAlias = Callable[[Message, Answers, PartitionShare], Delivery]
ReadFrom: TypeAlias = Callable[[StreamPartition, int], None]
"""Reads a partition from another offset, if it is still this member's."""


class Partitions:
    """Holds the windows of the partitions of a member, their capacities and the timer.

    Args:
        plan: the arguments of the queue.
        readers: the readers of the member.
        store: stores acks.
        sender: sends what transactions publish, and their acks.
        giving_up: does what is to be done with messages that are given up.
        reporter: reports failures to the hook.
        spawn: runs a task in the background.
        read_from: reads a partition from another offset.
        answers: takes the answers of deliveries.
        ready: called when there may be something to hand out again.
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
        self.shares: dict[StreamPartition, PartitionShare] = {}
        self.acks = AcksWriter(plan.group, store, sender, reporter, self.shares, self._lost)
        self.suspects: Suspects[Delivery] = Suspects(lambda: self.windows().values())
        self.make_delivery: MakeDelivery = Delivery
        self.expired = self.given_up = 0
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
        self.flow: ReadyFlow[StreamPartition] = ReadyFlow(
            _flow_settings(plan), self._choose, self._time(), self._in_flight
        )
        self.max_in_flight = plan.options.max_in_flight
        self._backs_off = plan.options.backoff is not None
        self._timer: asyncio.TimerHandle | None = None
        self.timer_at = inf

    def windows(self) -> dict[StreamPartition, AckWindow[Delivery]]:
        """Return the windows of the claimed partitions."""
        return {
            place: share.window for place, share in self.shares.items() if share.window is not None
        }

    def is_tier(self, stream: str) -> bool:
        """Return True if a stream is one in which messages wait."""
        return stream in self._tiers

    # Claims and releases

    def claim(self, place: StreamPartition, first: int) -> None:
        """Hold a partition until it is known what is settled of it.

        Args:
            place: the partition.
            first: the position of its first message that was read.
        """
        share = self.shares[place] = PartitionShare(place, PartitionProducers())
        asked_for = self._readers.position(place)
        begin = first if asked_for is None else asked_for
        self.pause(share)
        name = f"claim:{place.stream}:{place.partition}"
        self._spawn(lambda: self._claimed(share, first, begin), name)

    async def _claimed(self, share: PartitionShare, first: int, begin: int) -> None:
        place, plan = share.place, self._plan
        snapshot, in_order, _ = await self.acks.claim(share, first)
        if self.shares.get(place) is not share:
            return  # released meanwhile
        if begin > snapshot.base:
            # The reader began behind messages that are not settled.
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
        self._set_levels(self.flow.connected(place, INT64_MAX, self._time()))
        self._resume(share)

    def _lost(self, share: PartitionShare, base: int) -> None:
        """Forget a partition, and read it again from what is not settled."""
        self._forget(share)
        self._read_from(share.place, base)

    async def finish(self, transaction: DeliveryTransaction) -> None:
        """Repeat a commit in doubt until it is certain, or its partition is another member's."""
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
        """Hand out nothing more of partitions, and store what is settled of them.

        Cancelling releases them without that.

        Args:
            places: the partitions.
            drain_timeout: seconds to wait for answers, for messages that are being given up, and
                for commits of transactions.
            waits: False does not wait for answers.

        Returns:
            The number of transactions that are left in doubt, for the next owner.
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
            for share in shares:
                with suppress(LiftbridgeError):  # reported
                    await self.acks.save(share, last=True)
        finally:
            for share in shares:
                self._forget(share)
        left = sum(len(share.producers.committing) for share in shares)
        if left:
            logger.warning("%d transactions are left in doubt, for the next owner", left)
        return left

    def _forget(self, share: PartitionShare) -> None:
        if self.shares.get(share.place) is share:
            del self.shares[share.place]
            self._set_levels(self.flow.closed(share.place, self._time()))
            if share.is_paused:
                self._resume(share)
        if share.window is not None:
            share.window.drop()
            self.suspects.pass_over(share.window)
        self._end_turn()

    def close(self) -> None:
        """Stop the timer and forget all partitions."""
        for share in tuple(self.shares.values()):
            self._forget(share)
        self.arm(inf)

    def pause(self, share: PartitionShare) -> None:
        """Read no more of a partition for now; `go_on` reads on."""
        if self.shares.get(share.place) is share:
            share.is_paused = True
            self._readers.pause([share.place])

    def _resume(self, share: PartitionShare) -> None:
        share.is_paused = False
        self._readers.resume([share.place])

    def pause_until(self, share: PartitionShare, seconds: float) -> None:
        """Read no more of a partition for some time."""
        self.pause(share)
        share.resumes_at = self._time() + seconds
        self._arm_before(share.resumes_at)

    # Handing out

    def hold_back(self, suspect: Delivery) -> None:
        """Begin the turn of a suspect; its time for an answer begins with `give_out`."""
        suspect.deadline = inf
        self.suspects.handed_out(suspect)

    def give_out(self, suspect: Delivery, window: AckWindow[Delivery]) -> None:
        """Begin the time for an answer of a suspect."""
        window.extend(suspect, self._time())
        self._arm_before(suspect.deadline)

    def take_back(self, delivery: Delivery, window: AckWindow[Delivery], delay: float) -> None:
        """Hand out a message later that nobody works on; the attempt does not count."""
        window.take_back(delivery, self._time(), delay)
        self._arm_before(window.next_at())
        self.go_on(delivery.share, window)

    # Going on

    def answered(
        self, share: PartitionShare, window: AckWindow[Delivery], outcome: Outcome
    ) -> None:
        """Go on after a message of a partition was answered."""
        if self._backs_off:
            self._adapt(share, outcome)
        if outcome is not Outcome.FINISHED:
            self._arm_before(window.next_at())
        self.go_on(share, window)

    def _adapt(self, share: PartitionShare, outcome: Outcome) -> None:
        levels = self.flow.answered(share.place, outcome, self._time())
        if levels or self.flow.is_backing_off:
            self._set_levels(levels)

    def go_on(self, share: PartitionShare, window: AckWindow[Delivery]) -> None:
        """Do what is possible now: give up, hand out again, read on."""
        if window.failure is not None:
            self._stop(window.failure)
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
            self._ready()  # `pass_on` may find room

    def _end_turn(self) -> None:
        """Let all partitions go on that have waited for a suspect."""
        if self.suspects.end_turn():
            for share in tuple(self.shares.values()):
                if share.window is not None:
                    self.go_on(share, share.window)

    def _give_up(self, share: PartitionShare, window: AckWindow[Delivery]) -> None:
        while window.given_up:
            delivery = window.given_up.popleft()
            try:
                self._giving_up.count(delivery)
            except TooManyDeadLetters as error:
                self._stop(error)
                return
            share.giving_up += 1
            self._spawn(lambda delivery=delivery: self._given(share, window, delivery), "give-up")  # type: ignore[misc]

    async def _given(
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
            self.acks.hurry()
        self.go_on(share, window)

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
                    self.suspects.pass_over(share.window)
                self.go_on(share, share.window)
        self._arm_before(self._flow_at())

    def pass_on(self) -> bool:
        """Let partitions that have messages deliver in place of those that have none.

        Returns:
            True if one that had to wait may deliver now.
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
        """Return True if a partition has messages that it could deliver."""
        window = share.window
        if window is None or share.drained is not None:
            return False
        if window.ready:
            return True
        return share.is_paused and share.resumes_at <= self._time() and window.may_take

    def _choose(self, places: Sequence[StreamPartition]) -> StreamPartition:
        """Choose a partition to give a level to: one with messages where there is one."""
        waiting = [
            place
            for place in places
            if (share := self.shares.get(place)) is not None and self._waits(share)
        ]
        return random.choice(waiting or places)  # noqa: S311 - no secret

    def _flow_at(self) -> float:
        """Return when the flow has something to do; never while every partition has its share."""
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
                self.go_on(share, share.window)
                self._arm_before(share.window.next_at())
                if share.resumes_at > now:
                    self._arm_before(share.resumes_at)
        if self._flow_at() <= now:
            self._set_levels(self.flow.tick(now))
        self._arm_before(self._flow_at())

    def _expire(self, share: PartitionShare, expired: list[Delivery]) -> None:
        self.expired += len(expired)
        more = f" and {len(expired) - 1} more" if len(expired) > 1 else ""
        # As text: whatever keeps the records of a log would keep the client.
        logger.warning("not answered in time: %s%s", repr(expired[0]), more)
        for delivery in expired:
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
