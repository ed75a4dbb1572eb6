"""What stands behind a subscription: subscribes, takes in what comes, and goes on after breaks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

from .errors import (
    ClientClosed,
    ConnectionFailed,
    LiftbridgeError,
    PartitionNotFound,
    PartitionPaused,
    PartitionTaken,
    RequestTimeout,
    StreamDeleted,
    StreamNotFound,
    StreamReset,
    SubscriptionError,
    SubscriptionLost,
    TLSFailed,
)
from .feed import Feed
from .intake import Intake
from .model import EndReason, StartPosition
from .net.connection import Connection
from .net.lane_exchange import LaneExchange
from .net.link import Purpose
from .net.pumped_exchange import PumpedExchange
from .net.supervisor import Child
from .options import timer_seconds
from .position import Position, ReversePosition
from .read_budget import ReadBudget
from .reading_patience import GiveUp, ReadingPatience
from .reading_plan import ReadingPlan
from .reading_start import broker_for, resolve, subscribe_request
from .status import (
    CallFailure,
    Code,
    Reach,
    StreamEnd,
    error_from,
    replaced_in_group,
    stream_end,
)
from .telemetry import Resubscribed, Retried, Subscribed, SubscriptionEnded
from .wire.rpc import SUBSCRIBE

logger = logging.getLogger("liftbridge_aio.subscription")


class Reading:
    """Reads one partition into a feed.

    A task exists only while it subscribes. After that the call hands messages to `received`, and
    tells its end to `ended`, which starts the next task.
    """

    def __init__(self, plan: ReadingPlan, connection: Connection, budget: ReadBudget) -> None:
        self._loop = asyncio.get_running_loop()
        self.plan = plan
        self.feed = Feed(lambda: budget.share, self._account)
        self.intake = Intake(self.feed, self, self._account)
        self.started: asyncio.Future[None] = self._loop.create_future()
        """Done once the server has accepted the subscription, or it ended without."""
        self.resubscriptions = 0
        self.address: str | None = None
        """The broker that is read from now."""
        self.on_end: Callable[[LiftbridgeError | None], None] | None = None
        """Told of the end at once, before what waits was read; must not touch this then."""
        self._connection = connection
        self._budget = budget
        self._joined = False
        self._creation_timestamp = 0
        self._start = plan.start
        self._child: Child | None = None
        self._exchange: LaneExchange | PumpedExchange | None = None
        self._asked = 0.0
        timeout = plan.resubscribe_timeout
        self._patience = ReadingPatience(
            self._loop.time(),
            plan.timeout,
            float("inf") if timeout is None else timer_seconds(timeout),
            connection.not_found_timeout,
        )

    @property
    def accepted(self) -> bool:
        """Whether the server has accepted the subscription at least once."""
        return self._patience.started

    @property
    def position(self) -> Position | ReversePosition:
        """Where the reading stands."""
        return self.intake.position

    @property
    def start_offset(self) -> int | None:
        """The offset at which it begins; None where that is not known as an offset."""
        start = self._start
        return start.value if start.position is StartPosition.OFFSET else None

    # Life

    def begin(self) -> None:
        """Start to read.

        Raises:
            ClientClosed: the client is not running.
        """
        self._spawn(None)
        self._joined = True
        if self._budget.join():
            self._resize_windows()

    def close(self) -> None:
        """End the reading at once. May be called again."""
        self._finish(EndReason.CLOSED)

    def drop(self) -> None:
        """End the reading at once, and give back the room of what nobody has read."""
        self.close()
        self.intake.discard()

    async def wait_closed(self) -> None:
        """Wait until no task is left. Cancelling abandons the wait."""
        if self._child is not None:
            await self._child.wait()

    def _spawn(self, failure: CallFailure | None) -> None:
        name = f"subscription:{self.plan.stream}:{self.plan.partition}"
        self._child = self._connection.supervisor.spawn(self._work, failure, name=name)

    async def _work(self, failure: CallFailure | None) -> None:
        """Subscribe, for the first time or after `failure`. Cancelling closes the reading."""
        try:
            if failure is None:
                await self._begin()
            else:
                while self.intake.judge_some():  # noqa: ASYNC110 - lets others run in between
                    await asyncio.sleep(0)
            while not self.feed.ended:
                if failure is None:
                    failure = await self._subscribe()
                    if failure is None:
                        return
                failure = await self._recover(failure)
        except ClientClosed:
            self.close()
        except LiftbridgeError as error:
            self.failed(error, self.position.last)
        except asyncio.CancelledError:
            self.close()
            raise
        except Exception as error:
            self._broken(error)
            raise

    def _finish(
        self, reason: EndReason | None = None, error: LiftbridgeError | None = None
    ) -> bool:
        """End in an orderly way or with an error; False if it had ended before."""
        if self.feed.ended:
            return False
        if reason is not None:
            self.feed.end(reason)
        elif error is not None:
            self.feed.fail(error)
        self.address = None
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.leave()
        if self._child is not None:
            self._child.cancel()
        if self._joined and self._budget.leave():
            self._resize_windows()
        if not self.started.done():
            self.started.set_result(None)
        if self.on_end is not None:
            self.on_end(error)
        return True

    def _end(self, reason: EndReason) -> None:
        if self._finish(reason):
            self._report_end(None)

    def _broken(self, error: Exception) -> None:
        broken = SubscriptionError(f"the reading failed by a fault of the client: {error!r}")
        broken.__cause__ = error
        self._finish(error=broken.at(self.plan.stream, self.plan.partition))

    def _report_end(self, error: LiftbridgeError | None) -> None:
        plan = self.plan
        self._connection.reporter.subscription_ended(
            SubscriptionEnded(plan.stream, plan.partition, self.feed.reason, error)
        )

    # What the intake tells

    def delivered(self) -> None:
        """Take note that messages came that are wanted."""
        self._patience.delivered()

    def stopped(self) -> None:
        """End: the stop was reached."""
        self._end(EndReason.STOP_REACHED)

    def failed(self, error: LiftbridgeError, after: int | None) -> None:
        """End with an error, behind the message at the offset `after`."""
        error.at(self.plan.stream, self.plan.partition, after)
        if self._finish(error=error):
            self._report_end(error)
        else:
            self.feed.spoil(error)

    # What the call tells

    @property
    def full(self) -> bool:
        """Whether more should wait: asked on the plain path, which has no window of its own."""
        return self.feed.full

    def received(self, messages: list[bytes]) -> None:
        """Take what came, in order."""
        try:
            self.feed.put(messages)
        except Exception as error:
            logger.exception("what came could not be taken in")
            self._broken(error)

    def ended(self, failure: CallFailure) -> None:
        """Go on after the call has ended, or end too."""
        self._exchange = self.address = None
        if self.feed.ended:
            return
        self.feed.disconnect()
        self._patience.broke(self._loop.time() - self._asked)
        try:
            self._spawn(failure)
        except ClientClosed:
            self.close()

    # The budget

    def _account(self, difference: int) -> None:
        if self._budget.account(difference):
            self._resize_windows()

    def _resize_windows(self) -> None:
        # Later, because this comes in the middle of taking in what came.
        self._loop.call_soon(self._connection.pool.resize_subscribe_windows)

    # The beginning

    async def _begin(self) -> None:
        plan = self.plan
        self._patience.begin(self._loop.time())
        try:
            async with asyncio.timeout(plan.timeout):
                await self._resolve()
        except TimeoutError as error:
            if isinstance(error, LiftbridgeError):
                raise
            text = f"no answer about the partition within {plan.timeout:g} s"
            raise RequestTimeout(text, stream=plan.stream, partition=plan.partition) from None

    async def _resolve(self) -> None:
        plan = self.plan
        info = await self._connection.metadata.stream(plan.stream, renew=True)
        self._creation_timestamp = info.creation_timestamp
        if plan.partition not in info.partitions:
            text = f"the stream has {len(info.partitions)} partitions"
            raise PartitionNotFound(text)
        self._start, self.intake.position = await resolve(plan, self._connection)
        if self.position.empty:
            self._end(EndReason.EMPTY)
        elif self.position.finished:
            self._end(EndReason.STOP_REACHED)

    # One try

    async def _subscribe(self) -> CallFailure | None:
        """Subscribe; None where that succeeded and what comes is taken in from now on."""
        self._asked = self._loop.time()
        try:
            address = self._connection.router.address_of(broker_for(self.plan, self._connection))
            async with AsyncExitStack() as stack:
                async with self._in_time(f"{address} did not accept the subscription"):
                    link = await self._connection.pool.get(address, Purpose.SUBSCRIBE)
                    exchange = link.stream(SUBSCRIBE)
                    await stack.enter_async_context(exchange)
                    request = subscribe_request(self.plan, self._start, self.position)
                    await exchange.send([bytes(request)], end=True)
                    # The first message is empty whatever its bytes say: the handshake (W16).
                    handshake = await exchange.receive()
                if handshake is None:
                    raise CallFailure(Code.UNAVAILABLE, "the server ended the subscription at once")
                link.received()
                if self.feed.ended:
                    return None  # closed in the same moment
                self._accepted(address)
                stack.pop_all()
            self._exchange = exchange
            self.feed.connect(exchange.drained)
            exchange.deliver(self)
        except CallFailure as failure:
            return failure
        return None

    @asynccontextmanager
    async def _in_time(self, complaint: str) -> AsyncIterator[None]:
        """Bound a part of starting or resuming by what is left for the whole.

        Raises:
            CallFailure: the time is up.
        """
        try:
            async with asyncio.timeout(self._patience.left(self._loop.time())):
                yield
        except TimeoutError as error:
            text = f"{complaint} in time"
            raise CallFailure(Code.DEADLINE_EXCEEDED, text, Reach.UNKNOWN) from error

    def _accepted(self, address: str) -> None:
        plan, patience, next_offset = self.plan, self._patience, self.position.next
        reporter = self._connection.reporter
        self.address = address
        first = not patience.started
        down = patience.accepted(self._loop.time())
        if first:
            logger.debug("subscribed to %s/%d at %s", plan.stream, plan.partition, address)
            reporter.subscribed(Subscribed(plan.stream, plan.partition, address, next_offset))
            if not self.started.done():
                self.started.set_result(None)
        else:
            self.resubscriptions += 1
            reporter.resubscribed(
                Resubscribed(
                    plan.stream, plan.partition, address, next_offset, patience.attempts, down
                )
            )

    # What to do when it ends

    async def _recover(self, failure: CallFailure) -> CallFailure | None:
        """End the feed, raise, or wait until another try makes sense.

        Returns:
            What failed while waiting, to be recovered from in turn; None if nothing did.
        """
        plan = self.plan
        if plan.consumer is not None and replaced_in_group(failure):
            # Whether the partition is still this member's is for the group to find out.
            text = f"no longer this member's to read: {failure.text}"
            raise PartitionTaken(text) from failure
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
        if end is StreamEnd.LOG_CLOSED and self._patience.attempts:
            # A closing server says the same, so it takes a second time, and the flag, which alone
            # proves nothing: v1.9.0 keeps it up after a resume.
            snapshot = self._connection.metadata.snapshot
            partition = snapshot.partition(plan.stream, plan.partition)
            if partition is not None and partition.paused and not plan.resume:
                raise PartitionPaused("the partition is paused") from failure
        # What is left from before a break takes no more than half of the room.
        await self.feed.room()
        await self._wait_before_next_try(end, failure)
        return await self._renew_metadata()

    async def _wait_before_next_try(self, end: StreamEnd, failure: CallFailure) -> None:
        patience = self._patience
        patience.attempts += 1
        delay = self._connection.router.delay(patience.attempts)
        not_found = end is StreamEnd.NOT_FOUND and not self._is_listed()
        verdict = patience.try_again(
            self._loop.time(), delay, not_found=not_found, untrusted=failure.insecure
        )
        if verdict is GiveUp.NOT_FOUND:
            raise self._gone(failure) from failure
        if verdict is GiveUp.UNTRUSTED:
            raise error_from(SUBSCRIBE.name, failure) from failure
        if verdict is GiveUp.OUT_OF_TIME:
            if not patience.started:
                raise error_from(SUBSCRIBE.name, failure) from failure
            text = f"could not be resumed within {patience.limit:g} s: {failure.text}"
            others = [said for said in self._connection.pool.complaints if said not in text]
            text = "; ".join([text, *others])
            raise SubscriptionLost(text, offset=self.position.last) from failure
        self._connection.reporter.retried(
            Retried(SUBSCRIBE.name, patience.attempts, delay, failure)
        )
        await asyncio.sleep(delay)

    def _is_listed(self) -> bool:
        """Whether brokers list the partition: one that has just started may not know it yet."""
        info = self._connection.metadata.snapshot.streams.get(self.plan.stream)
        return info is not None and self.plan.partition in info.partitions

    def _gone(self, failure: CallFailure) -> LiftbridgeError:
        if self._patience.started:
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
            unfit = type(error) if isinstance(error, TLSFailed) else None
            return CallFailure(Code.UNAVAILABLE, str(error), Reach.UNKNOWN, unfit=unfit)
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
