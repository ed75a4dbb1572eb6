"""The task behind a subscription: subscribes, reads, and subscribes again where it left off."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

from .errors import (
    ClientClosed,
    ConnectionFailed,
    LiftbridgeError,
    PartitionNotFound,
    PartitionPaused,
    RequestTimeout,
    StreamDeleted,
    StreamNotFound,
    StreamReset,
    SubscriptionError,
    SubscriptionLost,
)
from .feed import Feed
from .model import (
    EndReason,
    StartAt,
    StartPosition,
)
from .net.connection import Connection
from .net.link import Purpose
from .options import timer_seconds
from .position import Position, ReversePosition, Verdict
from .read_budget import ReadBudget
from .reading_plan import ReadingPlan
from .reading_start import broker_for, resolve
from .status import CallFailure, Code, Reach, StreamEnd, error_from, stream_end
from .telemetry import Resubscribed, Retried, Subscribed, SubscriptionEnded
from .wire import proto
from .wire.codec import decode_message
from .wire.rpc import SUBSCRIBE

logger = logging.getLogger("liftbridge_aio.subscription")

_NS: Final = 1_000_000_000
_STEADY_AFTER: Final = 1.0
"""Seconds after which a subscription that breaks counts as having stood."""


class Reading:
    """Reads one partition into a feed. `run` is the task; everything else is for its owner."""

    def __init__(self, plan: ReadingPlan, connection: Connection, budget: ReadBudget) -> None:
        self.plan = plan
        self.feed = Feed(lambda: budget.capacity, budget.account)
        self.started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done once the server has accepted the subscription, or it ended without."""
        self.position: Position | ReversePosition = Position()
        self.resubscriptions = 0
        self.dropped = 0
        self.address: str | None = None
        """The broker that is read from now."""
        self._connection = connection
        self._budget = budget
        self._creation_timestamp = 0
        self._start = plan.start
        self._never_started = True
        self._not_found_since: float | None = None
        self._lost_since: float | None = None
        self._began = asyncio.get_running_loop().time()
        self._attempts = 0

    @property
    def accepted(self) -> bool:
        """Whether the server has accepted the subscription at least once."""
        return not self._never_started

    async def run(self) -> None:
        """Read until the end, whatever that is. Cancelling ends the feed as closed."""
        if self._budget.join():
            self._connection.pool.resize_subscribe_windows()
        try:
            await self._begin()
            while not self.feed.ended:
                failure = await self._read_once()
                while failure is not None and not self.feed.ended:
                    failure = await self._recover(failure)
        except ClientClosed:
            self.feed.end(EndReason.CLOSED)
        except LiftbridgeError as error:
            self.feed.fail(error.at(self.plan.stream, self.plan.partition, self.position.last))
            self._report_end(error)
        except asyncio.CancelledError:
            self.feed.end(EndReason.CLOSED)
            raise
        except Exception as error:
            broken = SubscriptionError(f"the reading failed by a fault of the client: {error!r}")
            broken.__cause__ = error
            self.feed.fail(broken.at(self.plan.stream, self.plan.partition))
            raise
        finally:
            if self._budget.leave():
                self._connection.pool.resize_subscribe_windows()
            if not self.started.done():
                self.started.set_result(None)

    def _end(self, reason: EndReason) -> None:
        self.feed.end(reason)
        self._report_end(None)

    def _report_end(self, error: LiftbridgeError | None) -> None:
        plan = self.plan
        self._connection.reporter.subscription_ended(
            SubscriptionEnded(plan.stream, plan.partition, self.feed.reason, error)
        )

    async def _begin(self) -> None:
        plan = self.plan
        self._began = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(plan.timeout):
                await self._resolve()
        except TimeoutError:
            text = f"no answer about the partition within {plan.timeout:g} s"
            raise RequestTimeout(text, stream=plan.stream, partition=plan.partition) from None

    async def _resolve(self) -> None:
        plan = self.plan
        info = await self._connection.metadata.stream(plan.stream, renew=True)
        self._creation_timestamp = info.creation_timestamp
        if plan.partition not in info.partitions:
            text = f"the stream has {len(info.partitions)} partitions"
            raise PartitionNotFound(text)
        self._start, self.position = await resolve(plan, self._connection)
        if self.position.empty:
            self._end(EndReason.EMPTY)
        elif self.position.finished:
            self._end(EndReason.STOP_REACHED)

    def _request(self) -> proto.SubscribeRequest:
        plan, start = self.plan, self._start
        resumed_at = self.position.next
        if resumed_at is not None:
            start = StartAt.offset(resumed_at)
        by_time = start.position is StartPosition.TIMESTAMP
        stop = None if plan.reverse else self.position.stop_offset
        return proto.SubscribeRequest(
            stream=plan.stream,
            partition=plan.partition,
            start_position=proto.StartPosition(start.position),
            start_offset=start.value if start.position is StartPosition.OFFSET else 0,
            start_timestamp=start.value if by_time else 0,
            stop_position=(
                proto.StopPosition.STOP_ON_CANCEL
                if stop is None
                else proto.StopPosition.STOP_OFFSET
            ),
            stop_offset=stop or 0,
            read_isr_replica=plan.from_isr_replica,
            resume=plan.resume,
            reverse=plan.reverse,
        )

    # One try

    async def _read_once(self) -> CallFailure | None:
        """Subscribe and read until that ends; None where the end was ours."""
        plan = self.plan
        began = asyncio.get_running_loop().time()
        try:
            address = self._connection.router.address_of(broker_for(plan, self._connection))
            async with AsyncExitStack() as stack:
                async with self._in_time(f"{address} did not accept the subscription"):
                    link = await self._connection.pool.get(address, Purpose.SUBSCRIBE)
                    exchange = await stack.enter_async_context(link.open(SUBSCRIBE))
                    await exchange.send([bytes(self._request())], end=True)
                    # The first message is empty whatever its bytes say: the handshake (W16).
                    handshake = await exchange.receive()
                if handshake is None:
                    raise CallFailure(Code.UNAVAILABLE, "the server ended the subscription at once")
                link.received()
                self._accepted(address)
                while True:
                    data = await exchange.receive()
                    if data is None:
                        raise CallFailure(Code.OK, "the server ended the subscription")
                    link.received()
                    if not self._take(data):
                        return None
                    if self.feed.full:
                        await self.feed.room()
        except CallFailure as failure:
            stood = self.address is not None
            self.address = None
            if stood and asyncio.get_running_loop().time() - began > _STEADY_AFTER:
                self._attempts = 0
            return failure

    @asynccontextmanager
    async def _in_time(self, complaint: str) -> AsyncIterator[None]:
        """Bound a part of starting or resuming by what is left for the whole.

        Raises:
            CallFailure: the time is up.
        """
        now = asyncio.get_running_loop().time()
        limit = self.plan.timeout
        since = self._began if self._never_started else self._lost_since
        if since is not None:
            limit = min(limit, since + self._patience() - now)
        try:
            async with asyncio.timeout(limit):
                yield
        except TimeoutError as error:
            text = f"{complaint} in time"
            raise CallFailure(Code.DEADLINE_EXCEEDED, text, Reach.UNKNOWN) from error

    def _accepted(self, address: str) -> None:
        plan, position = self.plan, self.position
        reporter = self._connection.reporter
        self.address = address
        if self._never_started:
            self._never_started = False
            logger.debug("subscribed to %s/%d at %s", plan.stream, plan.partition, address)
            reporter.subscribed(Subscribed(plan.stream, plan.partition, address, position.next))
            if not self.started.done():
                self.started.set_result(None)
        else:
            self.resubscriptions += 1
            now = asyncio.get_running_loop().time()
            down = now - (self._lost_since or now)
            reporter.resubscribed(
                Resubscribed(
                    plan.stream, plan.partition, address, position.next, self._attempts, down
                )
            )
        self._lost_since = self._not_found_since = None

    def _take(self, data: bytes) -> bool:
        """Take in a message; False where the reading is over."""
        message = decode_message(data)
        verdict = self.position.judge(message.offset, message.timestamp)
        if verdict is Verdict.DELIVER:
            self._attempts = 0
            self.feed.put(message, len(data))
            return True
        if verdict is Verdict.DROP:
            self.dropped += 1
            return True
        if verdict is Verdict.RESET:
            text = "another message stands at an offset that was delivered before"
            raise StreamReset(text, offset=message.offset)
        if verdict is Verdict.DELIVER_LAST:
            self.feed.put(message, len(data))
        self._end(EndReason.STOP_REACHED)
        return False

    # What to do when it ends

    async def _recover(self, failure: CallFailure) -> CallFailure | None:
        """End the feed, raise, or wait until another try makes sense.

        Returns:
            What failed while waiting, to be recovered from in turn; None if nothing did.
        """
        plan = self.plan
        end = stream_end(failure, reverse=plan.reverse)
        if plan.reverse and end is StreamEnd.STOP_REACHED and not self.position.finished:
            # Read backwards, a read-only partition stops at its newest message; go on below.
            return None
        reason = _ORDERLY.get(end)
        if reason is not None:
            # An unbounded reading of a read-only partition ends with the words of a stop (W21).
            bounded = plan.stop is not None
            self._end(reason if bounded else EndReason.READONLY)
            return None
        if end is StreamEnd.REVERSE_DONE:
            self._end(EndReason.STOP_REACHED)
            return None
        if end is StreamEnd.DELETED:
            raise StreamDeleted("the stream was deleted") from failure
        if end is StreamEnd.PAUSED:
            raise PartitionPaused("the partition is paused") from failure
        if end in {StreamEnd.REFUSED, StreamEnd.FENCED}:
            raise error_from(SUBSCRIBE.name, failure) from failure
        if end is StreamEnd.LOG_CLOSED and self._attempts:
            # A closing server says the same, so it takes a second time, and the flag, which alone
            # proves nothing: v1.9.0 keeps it up after a resume.
            snapshot = self._connection.metadata.snapshot
            partition = snapshot.partition(plan.stream, plan.partition)
            if partition is not None and partition.paused and not plan.resume:
                raise PartitionPaused("the partition is paused") from failure
        await self._wait_before_next_try(end, failure)
        return await self._renew_metadata()

    async def _wait_before_next_try(self, end: StreamEnd, failure: CallFailure) -> None:
        now = asyncio.get_running_loop().time()
        self._attempts += 1
        delay = self._connection.router.delay(self._attempts)
        if self._lost_since is None:
            self._lost_since = now
        if end is StreamEnd.NOT_FOUND:
            if self._not_found_since is None:
                self._not_found_since = now
            if now + delay - self._not_found_since > self._connection.not_found_timeout:
                raise self._gone(failure) from failure
        else:
            self._not_found_since = None
        timeout = self._patience()
        since = self._began if self._never_started else self._lost_since
        if now + delay - since > timeout:
            if self._never_started:
                raise error_from(SUBSCRIBE.name, failure) from failure
            text = f"could not be resumed within {timeout:g} s: {failure.text}"
            raise SubscriptionLost(text, offset=self.position.last) from failure
        self._connection.reporter.retried(Retried(SUBSCRIBE.name, self._attempts, delay, failure))
        await asyncio.sleep(delay)

    def _patience(self) -> float:
        if self._never_started:
            return self.plan.timeout
        timeout = self.plan.resubscribe_timeout
        return float("inf") if timeout is None else timer_seconds(timeout)

    def _gone(self, failure: CallFailure) -> LiftbridgeError:
        if not self._never_started:
            return StreamDeleted("the stream is gone")
        if self.plan.stream not in self._connection.metadata.snapshot.streams:
            return StreamNotFound("no broker knows the stream")
        return error_from(SUBSCRIBE.name, failure)

    async def _renew_metadata(self) -> CallFailure | None:
        """Learn who leads now, and that it is still the same stream.

        Without that the reading must not go on: a stream of the same name may have been created
        anew meanwhile, and its offsets would look like a continuation.
        """
        stream = self.plan.stream
        try:
            async with self._in_time(f"metadata of {stream} could not be fetched"):
                snapshot = await self._connection.metadata.refresh([stream])
        except (ConnectionFailed, RequestTimeout) as error:
            return CallFailure(Code.UNAVAILABLE, str(error), Reach.UNKNOWN)
        except CallFailure as failure:
            return failure
        info = snapshot.streams.get(stream)
        if info is None:
            return CallFailure(Code.NOT_FOUND, "no broker knows the stream")
        if info.creation_timestamp != self._creation_timestamp:
            text = "the stream was deleted and created again"
            raise StreamReset(text, offset=self.position.next)
        return None


_ORDERLY: Final = {
    StreamEnd.STOP_REACHED: EndReason.STOP_REACHED,
    StreamEnd.READONLY: EndReason.READONLY,
    StreamEnd.EMPTY: EndReason.EMPTY,
    # The start was computed here, or lies behind the end of a read-only partition (W22).
    StreamEnd.STOP_BEFORE_START: EndReason.STOP_REACHED,
}
