"""Decides what follows when the call of a reader ends: the end, an error, or another try."""

from __future__ import annotations

import asyncio
import enum
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from liftbridge_aio._core.absence import Absence
from liftbridge_aio._core.status import (
    CallFailure,
    Code,
    Reach,
    StreamEnd,
    error_from,
    replaced_in_group,
    stream_end,
)
from liftbridge_aio.errors import (
    ConnectionFailed,
    LiftbridgeError,
    NotLiftbridge,
    PartitionPaused,
    PartitionTaken,
    RequestTimeout,
    StreamDeleted,
    StreamNotFound,
    StreamReset,
    SubscriptionLost,
    TLSFailed,
)
from liftbridge_aio.model import EndReason
from liftbridge_aio.net.network import Network
from liftbridge_aio.options import timer_seconds
from liftbridge_aio.telemetry import Retried
from liftbridge_aio.wire.rpc import SUBSCRIBE

from .core.plan import ReadingPlan
from .core.position import Position, ReversePosition
from .core.resubscribe_deadline import GiveUp, ResubscribeDeadline

_END_REASONS: Final = {
    StreamEnd.STOP_REACHED: EndReason.STOP_REACHED,
    StreamEnd.READONLY: EndReason.READONLY,
    StreamEnd.EMPTY: EndReason.EMPTY,
    # The client computed the start, or it lies behind the end of a read-only partition.
    StreamEnd.STOP_BEFORE_START: EndReason.STOP_REACHED,
}

_LOOK_INTERVAL: Final = 0.05
"""Seconds between two fetches of metadata by readers that have lost their leader.

An answer lists all partitions of a stream. Readers therefore end their waits at common times, and
share one fetch. If each reader made its own, their cost would grow with the square of their number.
"""


class Again(enum.Enum):
    """When to subscribe again."""

    AT_ONCE = "at once"
    LATER = "later"


class Recovery:
    """Decides after each call of one reader, and waits before the next.

    Args:
        plan: what is read.
        network: its metadata has the leader, and the creation time of the stream.
        now: loop time.
    """

    def __init__(self, plan: ReadingPlan, network: Network, now: float) -> None:
        timeout = plan.resubscribe_timeout
        limit = float("inf") if timeout is None else timer_seconds(timeout)
        self.deadline = ResubscribeDeadline(now, plan.timeout, limit)
        self.absence = Absence(network.not_found_timeout)
        self.creation_timestamp = 0
        """Of the stream that is read: another one of the same name has another."""
        self._plan = plan
        self._network = network
        self._loop = asyncio.get_running_loop()

    @asynccontextmanager
    async def in_time(self, complaint: str) -> AsyncIterator[None]:
        """Bound a part of subscribing by what is left for the whole.

        Raises:
            CallFailure: the time is up.
        """
        try:
            async with asyncio.timeout(self.deadline.left(self._loop.time())):
                yield
        except TimeoutError as error:
            raise CallFailure(
                Code.DEADLINE_EXCEEDED, f"{complaint} in time", Reach.UNKNOWN
            ) from error

    def after(
        self, failure: CallFailure, position: Position | ReversePosition
    ) -> EndReason | Again:
        """Return how the subscription ends, or when to subscribe again.

        Raises:
            LiftbridgeError: it ends with this error.
        """
        plan = self._plan
        if plan.consumer is not None and replaced_in_group(failure):
            # The group finds out whether the partition is still assigned to this member.
            raise PartitionTaken(
                f"the partition is no longer read by this member: {failure.text}"
            ) from failure
        end = stream_end(failure, reverse=plan.reverse)
        if plan.reverse and end is StreamEnd.STOP_REACHED and not position.finished:
            # Read backwards, a read-only partition ends at its newest message.
            return Again.AT_ONCE
        if end in _END_REASONS:
            # Of an unbounded subscription to a read-only partition, servers say "stop reached".
            return EndReason.READONLY if plan.stop is None else _END_REASONS[end]
        if end is StreamEnd.REVERSE_DONE:
            return EndReason.STOP_REACHED
        if end is StreamEnd.DELETED:
            raise StreamDeleted("the stream was deleted") from failure
        if not plan.unpause and self._is_paused(end):
            raise PartitionPaused("the partition is paused") from failure
        if end in {StreamEnd.REFUSED, StreamEnd.FENCED}:
            raise error_from(SUBSCRIBE.name, failure) from failure
        return Again.LATER

    def _is_paused(self, end: StreamEnd) -> bool:
        if end is StreamEnd.LOG_CLOSED and self.deadline.attempts:
            # A server that shuts down says the same, so it takes a second time, and the flag in the
            # metadata, which alone proves nothing: v1.9.0 keeps it set after a resume.
            snapshot = self._network.metadata.snapshot
            partition = snapshot.partition(self._plan.stream, self._plan.partition)
            return partition is not None and partition.paused
        return end is StreamEnd.PAUSED

    async def wait(
        self, failure: CallFailure, position: Position | ReversePosition
    ) -> CallFailure | None:
        """Wait until another try makes sense, and find the leader. Cancelling ends the wait.

        Returns:
            What failed meanwhile, to be recovered from in turn; None if nothing did.

        Raises:
            LiftbridgeError: no other try makes sense.
        """
        await self._wait_before_next_try(failure, position)
        return await self._renew_metadata(position)

    async def _wait_before_next_try(
        self, failure: CallFailure, position: Position | ReversePosition
    ) -> None:
        deadline, absence, pool = self.deadline, self.absence, self._network.pool
        not_found = stream_end(failure, reverse=self._plan.reverse) is StreamEnd.NOT_FOUND
        deadline.attempts += 1
        if not not_found:
            absence.interrupt()
        elif absence.confirmed:
            raise self._gone() from failure
        now = self._loop.time()
        delay = min(self._network.router.delay(deadline.attempts), absence.remaining)
        delay = math.ceil((now + delay) / _LOOK_INTERVAL) * _LOOK_INTERVAL - now
        verdict = deadline.try_again(now, delay, untrusted=failure.tls_failed)
        if verdict is GiveUp.OUT_OF_TIME and deadline.started:
            text = f"could not be resumed within {deadline.limit:g} s: {failure.text}"
            others = [said for said in pool.permanent_failures if said not in text]
            text = "; ".join([text, *others])
            raise SubscriptionLost(text, offset=position.last) from failure
        if verdict is GiveUp.OUT_OF_TIME and absence.interrupted and not_found:
            raise RequestTimeout(
                f"servers went away for {deadline.limit:g} s, and the last said: {failure.text}"
            ) from failure
        if verdict is not None:
            raise error_from(SUBSCRIBE.name, failure) from failure
        self._network.reporter.retried(Retried(SUBSCRIBE.name, deadline.attempts, delay, failure))
        await asyncio.sleep(delay)

    def _gone(self) -> LiftbridgeError:
        if self.deadline.started:
            return StreamDeleted("the stream is gone")
        return StreamNotFound("no broker knows the stream")

    async def _renew_metadata(self, position: Position | ReversePosition) -> CallFailure | None:
        """Find the leader, and make sure that it is still the same stream.

        A stream of the same name may have been created again meanwhile; its offsets would look like
        a continuation.
        """
        stream, metadata = self._plan.stream, self._network.metadata
        try:
            async with self.in_time(f"metadata of {stream} could not be fetched"):
                by = await metadata.refresh([stream])
        except (ConnectionFailed, RequestTimeout) as error:
            unusable = type(error) if isinstance(error, (TLSFailed, NotLiftbridge)) else None
            return CallFailure(Code.UNAVAILABLE, str(error), Reach.UNKNOWN, unusable=unusable)
        except CallFailure as failure:
            return failure
        info = metadata.snapshot.streams.get(stream)
        if info is None:
            self.absence.denied(self._loop.time(), by)
            return CallFailure(Code.NOT_FOUND, "no broker knows the stream")
        self.absence.known()
        if info.creation_timestamp != self.creation_timestamp:
            raise StreamReset("the stream was deleted and created again", offset=position.next)
        return None
