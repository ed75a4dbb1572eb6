"""Reads one partition: subscribes, buffers what is received, and resubscribes after breaks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress

from liftbridge_aio._core.status import CallFailure, Code
from liftbridge_aio._runtime.supervisor import Child
from liftbridge_aio.errors import (
    ClientClosed,
    LiftbridgeError,
    PartitionNotFound,
    StreamReset,
    UsageError,
)
from liftbridge_aio.model import EndReason, StartAt, StartPosition
from liftbridge_aio.net.broker_connection import Purpose
from liftbridge_aio.net.fast_call import FastCall
from liftbridge_aio.net.network import Network
from liftbridge_aio.net.plain_call import PlainCall
from liftbridge_aio.telemetry import (
    Resubscribed,
    Subscribed,
    SubscriptionEnded,
    SubscriptionStatistics,
)
from liftbridge_aio.wire.rpc import SUBSCRIBE

from .committed_decoder import CommittedDecoder
from .core.checkpoint import Checkpoint
from .core.memory_budget import MemoryBudget
from .core.plan import ReadingPlan
from .core.position import Position, ReversePosition
from .core.visibility import Replay
from .decoder import Decoder, bug
from .missed_offsets import MissedOffsets
from .part_reader import PartReader
from .receive_buffer import ReceiveBuffer
from .recovery import Again, Recovery
from .reverse_reader import receive_backwards
from .start import broker_for, log_probe, resolve, subscribe_request

logger = logging.getLogger("liftbridge_aio.subscription")


class PartitionReader:
    """Reads one partition into a `ReceiveBuffer`.

    A task exists only while it subscribes and, if the subscription is bounded, until its first
    message. After that the call passes messages to `received` and its end to `ended`, which starts
    the next task. A committed reading has another one while it reads a part of the log again.
    """

    def __init__(self, plan: ReadingPlan, network: Network, budget: MemoryBudget) -> None:
        self._loop = asyncio.get_running_loop()
        self.plan = plan
        self.buffer = ReceiveBuffer(lambda: budget.share, self._account)
        make = plan.make_visibility
        self._visibility = None if make is None else make()
        self.decoder = self._make_decoder()
        self.started: asyncio.Future[None] = self._loop.create_future()
        """Done once the server has accepted the subscription, or it ended before that."""
        self.missed = MissedOffsets(plan, network.reporter)
        self.resubscriptions = 0
        self.address: str | None = None
        """The broker that serves it now."""
        self.on_end: Callable[[LiftbridgeError | None], None] | None = None
        """Called at the end, before buffered messages were read; must not use this reader."""
        self._network = network
        self._budget = budget
        self._high_watermark: int | None = None
        self._start = plan.start
        self._child: Child | None = None
        self._replaying: Child | None = None
        self._call: FastCall | PlainCall | None = None
        self._subscribed_at = 0.0
        self._recovery = Recovery(plan, network, self._loop.time())
        self._parts = PartReader(
            plan, self._recovery, network, lambda part: PartitionReader(part, network, budget)
        )

    def _make_decoder(self) -> Decoder:
        visibility, buffer = self._visibility, self.buffer
        if visibility is None:
            return Decoder(buffer, self, self._account)
        return CommittedDecoder(buffer, self, self._account, visibility, self._start_replay)

    @property
    def accepted(self) -> bool:
        """True once the server has accepted the subscription."""
        return self._recovery.deadline.started

    @property
    def position(self) -> Position | ReversePosition:
        """The position: the next offset, and what to deliver."""
        return self.decoder.position

    @property
    def start_offset(self) -> int | None:
        """The offset at which it starts; None if that is not known as an offset."""
        start = self._start
        return start.value if start.position is StartPosition.OFFSET else None

    @property
    def next_offset(self) -> int | None:
        """The offset to be delivered next; None if it is not known yet."""
        last = self.decoder.last_delivered
        if last is not None:
            return last - 1 if self.plan.reverse else last + 1
        start = self.start_offset
        return self.decoder.next_offset if start is None else start

    def checkpoint(self) -> Checkpoint:
        """Return where it stands.

        Raises:
            UsageError: it reads in reverse.
        """
        plan, at, progress = self.plan, self.next_offset, self.decoder.progress
        if plan.reverse:
            raise UsageError(
                "a reverse subscription has no checkpoint",
                stream=plan.stream,
                partition=plan.partition,
            )
        start = self._start if at is None else StartAt.offset(at)
        delivered = progress.delivered
        if isinstance(plan.start, Checkpoint) and plan.start.value == at:
            delivered += plan.start.delivered
        return Checkpoint(
            start.position,
            start.value,
            start.delta,
            stream=plan.stream,
            partition=plan.partition,
            created=self._recovery.creation_timestamp,
            delivered=delivered,
            producers=progress.producers,
        )

    def statistics(self) -> SubscriptionStatistics:
        """Return the address, position and lag as far as they are known."""
        stream, partition, position = self.plan.stream, self.plan.partition, self.next_offset
        known = [
            each for each in (self._newest_known(), self.decoder.last_offset) if each is not None
        ]
        lag = None
        if position is not None and known and not self.plan.reverse:
            lag = max(max(known) + 1 - position, 0)
        return SubscriptionStatistics(stream, partition, self.address, position, lag)

    def _newest_known(self) -> int | None:
        """Return the newest high watermark ever known; servers may lose theirs in a restart."""
        told = self._network.metadata.high_watermark(self.plan.stream, self.plan.partition)
        if told is not None and (self._high_watermark is None or told > self._high_watermark):
            self._high_watermark = told
        return self._high_watermark

    # Beginning and end

    def begin(self) -> None:
        """Begin to read.

        Raises:
            ClientClosed: the client is not running.
        """
        self._spawn(None)
        if self._budget.join(self):
            self._resize_windows()

    def close(self) -> None:
        """End at once. May be called again."""
        self._finish(EndReason.CLOSED)
        if self._replaying is not None:
            self._replaying.cancel()
        if self.buffer.replaying:
            self.decoder.discard()
            if self.buffer.reason is not None:
                self.buffer.reason = EndReason.CLOSED  # the rest is missing

    def drop(self) -> None:
        """End at once, and discard what was not delivered."""
        self.close()
        if self.decoder.buffered and self.buffer.reason is not None:
            self.buffer.reason = EndReason.CLOSED  # it had come to its end, its reader has not
        self.decoder.discard()

    async def wait_closed(self) -> None:
        """Wait until no task is left. Cancelling abandons the wait."""
        for child in (self._child, self._replaying):
            if child is not None:
                await child.wait()

    def _spawn(self, failure: CallFailure | None) -> None:
        name = f"subscription:{self.plan.stream}:{self.plan.partition}"
        self._child = self._network.supervisor.spawn(self._work, failure, name=name)

    async def _work(self, failure: CallFailure | None) -> None:
        """Subscribe, for the first time or after `failure`. Cancelling ends the subscription."""
        try:
            if failure is None:
                await self._begin()
            while not self.buffer.ended:
                if failure is None:
                    failure = await self._subscribe()
                    if failure is None:
                        return
                failure = await self._judge_and_recover(failure)
        except ClientClosed:
            self.close()
        except LiftbridgeError as error:
            self.failed(error, self.position.last)
        except asyncio.CancelledError:
            self.close()
            raise
        except Exception as error:
            self.broken(error)
            raise

    def _finish(
        self, reason: EndReason | None = None, error: LiftbridgeError | None = None
    ) -> bool:
        """End in an orderly way or with an error; False if it had ended before."""
        if self.buffer.ended:
            return False
        if reason is not None:
            self.buffer.end(reason)
        elif error is not None:
            self.buffer.fail(error)
        self.address = None
        call, self._call = self._call, None
        if call is not None:
            call.close()
        if self._child is not None:
            self._child.cancel()
        if self._budget.leave(self):
            self._resize_windows()
        if not self.started.done():
            self.started.set_result(None)
        if self.on_end is not None:
            self.on_end(error)
        return True

    def _end(self, reason: EndReason) -> None:
        if self._finish(reason):
            self._report_end(None)

    def _report_end(self, error: LiftbridgeError | None) -> None:
        plan = self.plan
        self._network.reporter.subscription_ended(
            SubscriptionEnded(plan.stream, plan.partition, self.buffer.reason, error)
        )

    # Called by the decoder

    def delivered(self) -> None:
        """Note that wanted messages were received."""
        self._recovery.deadline.delivered()

    def stopped(self) -> None:
        """End: the stop was reached."""
        self._end(EndReason.STOP_REACHED)

    def failed(self, error: LiftbridgeError, after: int | None) -> None:
        """End with an error, behind the message at the offset `after`."""
        error.at(self.plan.stream, self.plan.partition, after)
        if self._finish(error=error):
            self._report_end(error)
        else:
            self.buffer.fail_after_end(error)

    # Called by the call

    @property
    def at_capacity(self) -> bool:
        """True if the plain path, which has no window of its own, should hold back messages."""
        return self.buffer.full

    def received(self, messages: list[bytes]) -> None:
        """Buffer received messages."""
        if self.missed.awaited is not None:
            self._look_for_gap(messages[0])
        self.buffer.put(messages)

    def ended(self, failure: CallFailure) -> None:
        """Recover from the end of the call."""
        self._call = self.address = None
        if self.buffer.ended:
            return
        self._broke_off()
        try:
            self._spawn(failure)
        except ClientClosed:
            self.close()

    def broken(self, error: Exception) -> None:
        """End because of a bug in the client, with an error."""
        at = self.plan.stream, self.plan.partition, self.position.last
        self._finish(error=bug(error).at(*at))

    def _look_for_gap(self, first: bytes) -> None:
        gap, address = self.missed.gap_before(first), self.address
        if gap and address is not None:
            probe = log_probe(self.plan, self._network, address)
            name = f"gap:{self.plan.stream}:{self.plan.partition}"
            with suppress(ClientClosed):
                child = self._network.supervisor.spawn(self.missed.examine, gap, probe, name=name)
                self.missed.examining(child)

    def _broke_off(self) -> None:
        self.address = None
        self.buffer.disconnect()
        self._recovery.deadline.broke(self._loop.time() - self._subscribed_at)

    # Memory

    def _account(self, difference: int) -> None:
        if self._budget.account(difference):
            self._resize_windows()

    def _resize_windows(self) -> None:
        # Later: this is called while received data is being processed.
        self._loop.call_soon(self._network.pool.resize_subscribe_windows)

    # Resolving the start

    async def _begin(self) -> None:
        plan = self.plan
        self._recovery.deadline.begin(self._loop.time())
        async with self._network.bounded(
            plan.timeout,
            "no answer about the partition",
            call=SUBSCRIBE.name,
            stream=plan.stream,
            partition=plan.partition,
        ):
            await self._resolve()
        if self._visibility is not None and not self.buffer.ended:
            await self._parts.look_back(self._visibility)
            self._recovery.deadline.begin(self._loop.time())

    async def _resolve(self) -> None:
        plan = self.plan
        info = await self._network.metadata.stream(plan.stream, plan.timeout, renew=True)
        self._recovery.creation_timestamp = info.creation_timestamp
        created = {plan.created, plan.start.created if isinstance(plan.start, Checkpoint) else 0}
        if created - {0, info.creation_timestamp}:
            raise StreamReset("the stream was deleted and created again")
        if plan.partition not in info.partitions:
            raise PartitionNotFound(f"the stream has {len(info.partitions)} partitions")
        self._start, self.decoder.position = await resolve(plan, self._network)
        if self.position.empty:
            self._end(EndReason.EMPTY)
        elif self.position.finished:
            self._end(EndReason.STOP_REACHED)

    # Subscribing once

    async def _subscribe(self) -> CallFailure | None:
        """Subscribe; return the failure, None if messages are being received."""
        self._subscribed_at = self._loop.time()
        try:
            address = self._network.router.address_of(broker_for(self.plan, self._network))
            async with AsyncExitStack() as stack:
                async with self._recovery.in_time(f"{address} did not accept the subscription"):
                    connection = await self._network.pool.get(address, Purpose.SUBSCRIBE)
                    call = connection.stream(SUBSCRIBE)
                    await stack.enter_async_context(call)
                    request = subscribe_request(self.plan, self._start, self.position)
                    await call.send([bytes(request)], end=True)
                    # The first message is the handshake, whatever its bytes are.
                    handshake = await call.receive()
                if handshake is None:
                    raise CallFailure(Code.UNAVAILABLE, "the server ended the subscription at once")
                connection.received()
                if self.buffer.ended:
                    return None  # it was closed meanwhile
                self._accepted(address)
                if not await self._take_first(call, address):
                    return None
                stack.pop_all()
            self._call = call
            self.buffer.connect(call.consumed)
            call.deliver(self)
        except CallFailure as failure:
            if self.address is not None:
                self._broke_off()
            return failure
        return None

    async def _take_first(self, call: FastCall | PlainCall, address: str) -> bool:
        """Receive the first message of a bounded subscription, so that it ends on any log.

        Returns:
            True if there may be more messages.

        Raises:
            CallFailure: the call ended.
        """
        plan, position = self.plan, self.position
        probe = log_probe(plan, self._network, address)
        if isinstance(position, ReversePosition):
            await receive_backwards(call, probe, plan, position, self.buffer)
        elif position.stop_offset is not None:
            first = await probe.first_message(call, position.stop_offset)
            gap = self.missed.gap_before(first)
            if first is None:
                self.missed.report(gap)
                self._end(EndReason.STOP_REACHED)
            else:
                if gap:
                    await self.missed.examine(gap, probe)
                self.buffer.put([first])
        self.buffer.disconnect()  # credit for these messages was returned already
        return not self.buffer.ended

    def _accepted(self, address: str) -> None:
        plan, deadline, next_offset = self.plan, self._recovery.deadline, self.position.next
        reporter = self._network.reporter
        self.address = address
        self.missed.expect(self.position)
        self._newest_known()
        first = not deadline.started
        down = deadline.accepted(self._loop.time())
        self._recovery.absence.known()
        if first:
            logger.debug("subscribed to %s/%d at %s", plan.stream, plan.partition, address)
            reporter.subscribed(Subscribed(plan.stream, plan.partition, address, next_offset))
            if not self.started.done():
                self.started.set_result(None)
        else:
            self.resubscriptions += 1
            reporter.resubscribed(
                Resubscribed(
                    plan.stream, plan.partition, address, next_offset, deadline.attempts, down
                )
            )

    # Reading a part again

    def _start_replay(self, decoder: CommittedDecoder, replay: Replay) -> None:
        name = f"replay:{self.plan.stream}:{self.plan.partition}"
        spawn = self._network.supervisor.spawn
        try:
            self._replaying = spawn(self._replay, decoder, replay, name=name)
        except ClientClosed:
            self.close()

    async def _replay(self, decoder: CommittedDecoder, replay: Replay) -> None:
        """Read a part of the log again. Cancelling ends the subscription."""
        try:
            await self._parts.read(replay.begin, replay.end, replay.feed)
            decoder.replayed(replay.shown())
        except ClientClosed:
            self.close()
        except LiftbridgeError as error:
            decoder.replay_failed(error)
        except asyncio.CancelledError:
            self.close()
            raise
        except Exception as error:
            decoder.replay_failed(bug(error))
            raise

    # After a call has ended

    async def _judge_and_recover(self, failure: CallFailure) -> CallFailure | None:
        """Judge what was received, on which the next offset depends, then recover."""
        while self.decoder.judge_some():  # noqa: ASYNC110 - lets others run in between
            await asyncio.sleep(0)
        return None if self.buffer.ended else await self._recover(failure)

    async def _recover(self, failure: CallFailure) -> CallFailure | None:
        """End, raise, or wait until another try makes sense.

        Returns:
            What failed while waiting, to be recovered from in turn; None if nothing did.
        """
        step = self._recovery.after(failure, self.position)
        if isinstance(step, EndReason):
            self._end(step)
        elif step is Again.LATER:
            # What is left from before a break takes no more than half of the buffer.
            await self.buffer.wait_for_space()
            return await self._recovery.wait(failure, self.position)
        return None
