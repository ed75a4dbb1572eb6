"""The handle of a member of a queue: an async context manager and an async iterator."""

from __future__ import annotations

import warnings
from asyncio import get_running_loop
from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Final, Generic, Literal, Self, TypeAlias, TypeVar, cast

from liftbridge_aio._core.arguments import (
    INT64_MAX,
    check_callable,
    check_flags,
    check_whole_number,
)
from liftbridge_aio._runtime.stop_signal import stopped_by_signals
from liftbridge_aio._runtime.supervisor import Child
from liftbridge_aio._subscribe.subscription_base import BATCH_SIZE
from liftbridge_aio.errors import (
    ClientClosed,
    InvalidRequest,
    LiftbridgeError,
    StreamNotFound,
    UsageError,
)
from liftbridge_aio.groups.consumer_group import ConsumerGroup
from liftbridge_aio.groups.core.group_plan import Assignment, GroupPlan
from liftbridge_aio.groups.core.group_state import GroupState
from liftbridge_aio.model import Ack, AckPolicy, Message, StartAt, StreamPartition
from liftbridge_aio.options import Duration, seconds, timer_seconds
from liftbridge_aio.retry import Retry
from liftbridge_aio.transactions.errors import CommitInDoubt
from liftbridge_aio.transactions.sender import Sender

from .acks_store import AcksStore, AcksStream, MemoryAcks, ReadLast
from .batches import DeliveryBatches, DeliveryT
from .core.moved_message import HEADERS
from .delivery import Delivery, ValueDelivery
from .delivery_runner import DeliveryHandler, DeliveryRunner
from .dispatcher import Dispatcher
from .giving_up import GivingUp
from .plan import QueueClient, QueuePlan, ReadAt
from .retry_tiers import AcksStreams, RetryTiers
from .statistics import (
    QueueStatistics,
    doubts,
    explain_backoff,
    explain_blocked,
    explanations,
)

if TYPE_CHECKING:
    from .leases import Leases

T = TypeVar("T")

OnTimeout: TypeAlias = Literal["cancel", "continue"]

_HAND_OVER: Final = 0.1
"""Seconds to wait for answers in a partition that another member has already begun to read.

The new owner loads the stored acks after 0.25 s.
"""


class Queue(Generic[DeliveryT]):
    """A member of a queue: an async iterator of deliveries.

    Create it with `Client.queue` and use it inside `async with`, which joins the group; leaving the
    block stores the acks and leaves the group. Any number of tasks may iterate over it.
    """

    def __init__(
        self, plan: QueuePlan, client: QueueClient, read_last: ReadLast, read_at: ReadAt
    ) -> None:
        self.stream = plan.stream
        self.group = plan.group
        options = plan.options
        self._plan = plan
        self._network = client.network
        self._open = client.queues
        self._tiers: RetryTiers | None = None
        if plan.tiers:
            self._tiers = RetryTiers(plan.stream, plan.group, plan.tiers, client, plan.timeout)
        self._store = self._acks_store(client, read_last)
        self._member = ConsumerGroup(self._group_plan(), client.network, self._store, client.budget)
        self._work = self._member._work  # noqa: SLF001 - the queue reads instead of the group
        self._dispatcher = Dispatcher(
            plan,
            self._work.readers,
            self._store,
            Sender(client, AckPolicy.ALL, Retry()),
            GivingUp(
                plan.group, options.dead_letter, options.on_giving_up, client.submit, self._tiers
            ),
            client.network.reporter,
            self._spawn,
            self._read_from,
        )
        self._leases: Leases | None = None
        if options.nats:
            from .leases import Leases  # noqa: PLC0415 - needs nats-py

            self._leases = Leases(plan, self._dispatcher, self.consumer_id, self._spawn, read_at)
        # State
        self._runner: DeliveryRunner | None = None
        """The current `run`."""
        self._children: set[Child] = set()
        """Running background tasks; cancelled when the queue is closed."""
        self._closer: Child | None = None
        """The task that closes the queue, from the first `aclose` on."""
        self._close_error: LiftbridgeError | None = None
        """The error of closing; each `aclose` raises it."""
        self._entered = False
        """True between `__aenter__` and `aclose`."""
        self._left_in_doubt = 0
        """Transactions that could not be finished before the queue was closed."""

    def _acks_store(self, client: QueueClient, read_last: ReadLast) -> AcksStore:
        plan = self._plan
        if not plan.stores_acks:
            return MemoryAcks(client.network)
        parts = client.network, client.streams, client.retrying, read_last, plan.timeout
        own = AcksStream(plan.group, plan.stream, *parts)
        if self._tiers is None:
            return own
        tiers = self._tiers.streams.values()
        stores = (AcksStream(plan.group, each, *parts, begins_anew=True) for each in tiers)
        return AcksStreams([own, *stores])

    def _group_plan(self) -> GroupPlan:
        plan = self._plan
        return GroupPlan(
            group=plan.group,
            streams=(plan.stream, *(self._tiers.streams.values() if self._tiers else ())),
            consumer_id=plan.consumer_id,
            start=plan.options.start,
            on_reset=plan.options.on_reset,
            commit_interval=None,
            on_assigned=self._assigned,
            on_revoked=self._revoked,
            on_taken=self._taken,
            unpause=plan.options.unpause,
            resumed=frozenset(self._tiers.streams.values() if self._tiers else ()),
            make_visibility=plan.make_visibility,
            timeout=plan.timeout,
            close_timeout=plan.close_timeout,
        )

    def __repr__(self) -> str:
        """Show stream, group, state and the number of partitions."""
        return (
            f"<Queue {self.stream!r} {self.group!r} {self.state.value}"
            f" partitions={len(self.assignment)}>"
        )

    @property
    def state(self) -> GroupState:
        """The state of the member in its group."""
        return self._member.state

    @property
    def assignment(self) -> Assignment:
        """The partitions that this member owns."""
        return self._member.assignment

    @property
    def blocked(self) -> Mapping[StreamPartition, LiftbridgeError]:
        """The partitions of this member that currently cannot be read, with their errors.

        A partition with `PartitionPaused` stays blocked until it is resumed or published to; with
        the option `unpause` this member resumes it. Other errors are retried, and listed here after
        two seconds.
        """
        return self._member.blocked

    @property
    def consumer_id(self) -> str:
        """The id of this member in the group."""
        return self._member.consumer_id

    def statistics(self) -> QueueStatistics:
        """Return counts of this member since it was entered."""
        return self._dispatcher.statistics()

    def explain(self) -> list[str]:
        """Return sentences about unsettled messages and what they wait for, for a log or console.

        The list is empty if all messages that were read are settled, all partitions can be read,
        and no failure slows the queue down.
        """
        now = get_running_loop().time()
        partitions = self._dispatcher.partitions
        texts = [
            *explain_blocked(self.blocked),
            *explanations(partitions.windows(), now),
            *doubts(partitions.shares),
            *explain_backoff(partitions.flow, now),
        ]
        return texts if self._leases is None else [*texts, *self._leases.explain()]

    # Lifecycle

    async def __aenter__(self) -> Self:
        """Join the group and begin to read. Cancelling leaves the group.

        Raises:
            StreamNotFound: the stream, or the stream of dead letters, does not exist.
            StreamReset: the stream was recreated with more partitions; `unsubscribe` deletes the
                acks of the old one.
            AlreadyMember: another holder of the durable subscription is alive.
            RequestTimeout: joining took too long.
            ConnectionFailed: no server of `nats` answered.
            LiftbridgeError: joining failed.
        """
        options = self._plan.options
        if self._entered or self._closer is not None:
            raise UsageError("a queue is entered only once; create a new one")
        if options.dead_letter is not None:
            await self._check_dead_letters(options.dead_letter.stream)
        # Not from the cache: a recreated stream may have other partitions.
        timeout = self._plan.timeout
        found = await self._network.metadata.stream(self.stream, timeout, renew=True)
        if self._plan.is_ephemeral:
            await self._forget_if_over()  # the last member may have been killed
        if self._tiers is not None:
            await self._tiers.create()
        await self._store.prepare()
        self._work.readers.merge.share(self._dispatcher)
        if self._leases is not None:
            await self._leases.open(found)
        try:
            await self._member.__aenter__()
        except BaseException:
            if self._leases is not None:
                await self._leases.close(self._plan.close_timeout)
            raise
        self._entered = True
        self._open.add(self)
        if self._leases is not None:
            self._leases.start()
        acks, interval = self._dispatcher.partitions.acks, timer_seconds(options.commit_interval)
        self._spawn(lambda: acks.run(interval), "commits")
        if (tiers := self._tiers) is not None:
            self._spawn(lambda: tiers.keep_visible(lambda: self.assignment), "tiers")
        return self

    async def _check_dead_letters(self, stream: str) -> None:
        """Raise `StreamNotFound` if the stream of dead letters does not exist."""
        try:
            await self._network.metadata.stream(stream, self._plan.timeout)
        except StreamNotFound as error:
            error.hint = "create the stream of dead letters first"
            raise

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Store the acks, leave the group and close; see `aclose`.

        Raises:
            LiftbridgeError: closing failed; not raised if the block has raised.
        """
        try:
            await self.aclose()
        except LiftbridgeError:
            if exc_type is None:
                raise

    async def aclose(self) -> None:
        """Stop delivering, wait for handlers of `run`, store the acks, and leave the group.

        Commits in doubt are finished first. Unanswered messages are redelivered by the next owner
        of their partition. Takes at most the client's close_timeout; cancelling takes effect after
        that. It may be called several times, from any task. In a handler of `run` it returns at
        once, and the queue closes after the handler.

        Raises:
            CommitInDoubt: a transaction could not be finished in time; the next owner of its
                partition finishes it.
            LiftbridgeError: leaving the group failed.
        """
        self._entered = False
        self._open.discard(self)
        if self._runner is not None:
            self._runner.stop()
        self._dispatcher.stop()
        if self._leases is not None:
            self._leases.stop()
        if self._closer is None:
            with suppress(ClientClosed):
                self._closer = self._supervised(self._close, "close")
        if self._runner is not None and self._runner.is_handlers_task:
            return
        if self._closer is None:
            await self._close()  # the client is closed, and with it all background tasks
        else:
            await self._closer.wait()
        if self._close_error is not None:
            raise self._close_error

    async def _close(self) -> None:
        timeout, leases = self._plan.close_timeout / 2, self._leases
        draining: Child | None = None
        if leases is not None:
            waits = self._runner is not None
            with suppress(ClientClosed):
                draining = self._supervised(lambda: leases.drain(timeout, waits=waits), "leases")
        try:
            await self._member.aclose()
            if draining is not None:
                await draining.wait()
            if self._left_in_doubt:
                text = (
                    f"{self._left_in_doubt} transactions of deliveries are in doubt; the next owner"
                    " of their partition finishes them"
                )
                error = CommitInDoubt(text, stream=self.stream)
                error.hint = "nothing was deleted; enter the queue again to finish them"
                raise error
            if self._plan.is_ephemeral:
                with suppress(ClientClosed):  # the next first member deletes them
                    await self._forget_if_over()
        except LiftbridgeError as error:
            self._close_error = error
        finally:
            self._dispatcher.close()
            if leases is not None:
                await leases.close(timeout / 2)
            for child in self._children:
                child.cancel()

    async def unsubscribe(self) -> None:
        """Close, and delete the stored acks if this was the last member of the group.

        The next member of the group then begins at its `start`. Cancelling may leave the acks
        stored.

        Raises:
            CommitInDoubt: a transaction could not be finished, so nothing was deleted.
            LiftbridgeError: leaving the group, or deleting the acks, failed.
        """
        await self.aclose()
        await self._forget_if_over()

    async def _forget_if_over(self) -> None:
        """Delete the stored acks and retry streams of the group if it has no members."""
        timeout = self._plan.timeout
        found = await self._network.metadata.fetch([self.stream], [self.group], timeout)
        if self.group not in found.groups:
            await self._dispatcher.partitions.acks.forget()
            if self._tiers is not None:
                await self._tiers.delete()

    def __del__(self) -> None:
        if getattr(self, "_entered", False):
            warnings.warn(f"{self!r} was entered but never left", ResourceWarning, stacklevel=2)

    # Deliveries

    def __aiter__(self) -> Self:
        """Return the queue."""
        return self

    async def __anext__(self) -> DeliveryT:
        """Return the next delivery of any partition, or wait for one.

        Cancelling loses no message.

        Raises:
            StopAsyncIteration: the queue or its client was closed.
            TooManyDeadLetters: the limit of dead letters was reached.
            UsageError: the queue was not entered.
            LiftbridgeError: a partition cannot be read, or the membership failed.
        """
        delivery = self._dispatcher.next_ready()
        if delivery is not None:
            return cast("DeliveryT", delivery)
        if self.state is GroupState.NEW and self._closer is None:
            raise UsageError("a queue is read inside `async with`: entering it joins the group")
        delivery = await self._dispatcher.next()
        if delivery is not None:
            return cast("DeliveryT", delivery)
        if not self._dispatcher.is_stopped:
            self._work.raise_error()
        raise StopAsyncIteration

    def batches(
        self,
        max_size: int = BATCH_SIZE,
        wait: Duration = 0.0,
    ) -> DeliveryBatches[DeliveryT]:
        """Iterate over lists of deliveries, which can be answered together.

            async for batch in queue.batches(max_size=100, wait=0.5):
                async with batch:
                    await store([delivery.value for delivery in batch])

        A list is complete when it has `max_size` deliveries, `wait` seconds after its first one, or
        when `max_in_flight` is reached. It is never empty. The `ack_wait` of each delivery begins
        when it enters the list.

        Args:
            max_size: the maximum of deliveries in a list.
            wait: seconds to wait for more than one; 0: only deliveries that are ready.

        Raises:
            InvalidRequest: an argument is invalid.
        """
        check_whole_number(max_size, "max_size", 1, INT64_MAX)
        return DeliveryBatches(self, self._dispatcher, max_size, timer_seconds(wait, "wait"))

    def with_values(self, decode: Callable[[Message], T]) -> Queue[ValueDelivery[T]]:
        """Return this queue with decoded values; `TypedStream.queue` calls it before entering.

        Args:
            decode: decodes the value of a message.
        """
        self._dispatcher.partitions.make_delivery = lambda message, answers, share: ValueDelivery(
            message, answers, share, decode
        )
        return cast("Queue[ValueDelivery[T]]", self)

    async def run(
        self,
        handler: DeliveryHandler[DeliveryT],
        *,
        concurrency: int = 1,
        on_timeout: OnTimeout = "cancel",
        stop_on_signals: bool = True,
    ) -> None:
        """Call a handler for each delivery, until the queue is closed, a signal, or an error.

        A delivery is acked when its handler returns, and nacked if it raises. The exception is
        logged and reported to the hook (`handler_failed`); `Nack` and `Reject` choose another
        answer. A handler may also answer its delivery itself.

            async def handle(delivery: Delivery) -> None:
                await store(delivery.value)

            async with client.queue("orders", group="billing") as queue:
                await queue.run(handle, concurrency=16)

        SIGTERM or the first Ctrl-C stops deliveries, and this returns after the running handlers.
        The interceptors of the client wrap the handler. Cancelling cancels the running
        handlers and waits for them; their deliveries stay unanswered.

        Args:
            handler: a coroutine function, or a plain function, which runs on the event loop and
                must not block. Its result is ignored.
            concurrency: the maximum of handlers at a time.
            on_timeout: the reaction to a handler that has not answered within ack_wait: "cancel"
                cancels it; with "continue" it keeps running, and its message is redelivered.
            stop_on_signals: stop on SIGTERM and Ctrl-C too, if this runs in the main thread.

        Raises:
            UsageError: the queue was not entered, or another `run` is active.
            InvalidRequest: an argument is invalid.
            TooManyDeadLetters: the limit of dead letters was reached.
            LiftbridgeError: a partition cannot be read, or the membership failed.
        """
        check_callable(handler, "the handler")
        check_whole_number(concurrency, "concurrency", 1, INT64_MAX)
        if on_timeout not in {"cancel", "continue"}:
            raise InvalidRequest(f"on_timeout is 'cancel' or 'continue', not {on_timeout!r}")
        check_flags(stop_on_signals=stop_on_signals)
        if self.state is GroupState.NEW or self._runner is not None:
            raise UsageError("a queue is run inside `async with`, by one task")
        runner = self._runner = DeliveryRunner(
            self.group,
            self._dispatcher,
            cast("DeliveryHandler[Delivery]", handler),
            self._plan.interceptors,
            concurrency=concurrency,
            cancels=on_timeout == "cancel",
        )
        try:
            with stopped_by_signals(runner.stop) if stop_on_signals else nullcontext():
                await runner.run()
        finally:
            self._runner = None
        if not self._dispatcher.is_stopped:
            self._work.raise_error()

    async def publish_later(
        self,
        value: bytes,
        delay: Duration,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        partition: int | None = None,
    ) -> Ack | None:
        """Publish a message for this group only, delivered after a delay.

        It waits in the retry stream of the shortest tier that covers the delay. Cancelling may
        leave the message stored.

        Args:
            value: the value of the message.
            delay: the minimum of seconds before delivery; at most the longest tier.
            key: as for `Client.publish`.
            headers: as for `Client.publish`.
            partition: as for `Client.publish`.

        Raises:
            UsageError: the queue has no `retry_streams`.
            InvalidRequest: the delay is longer than the longest tier.
            LiftbridgeError: as for `Client.publish`.
        """
        tiers = self._tiers
        if tiers is None:
            raise UsageError(
                "publish_later needs retry streams: QueueOptions(retry_streams=RetryStreams(...))",
                stream=self.stream,
            )
        wait, longest = seconds(delay, "delay"), self._plan.tiers[-1]
        if wait > longest:
            raise InvalidRequest(
                f"a delay of {wait:g} s is longer than the longest tier, {longest:g} s",
                stream=self.stream,
            )
        # Without forwarded headers of another queue, which have a wrong origin.
        own = {name: each for name, each in (headers or {}).items() if name not in HEADERS}
        return await tiers.publish(value, key, own, partition, 0, wait)

    def limit(self, max_in_flight: int) -> None:
        """Change the number of deliveries that may be in flight; 0 pauses the queue.

        Raises:
            InvalidRequest: it is out of range.
        """
        check_whole_number(max_in_flight, "max_in_flight", 0, INT64_MAX)
        self._dispatcher.partitions.limit(max_in_flight)

    # Partitions

    def _assigned(self, partitions: Assignment) -> None:
        """Claim partitions with open transactions now, not when their first message arrives."""
        for place in self._store.unfinished & partitions:
            self._dispatcher.partitions.claim(place, 0)

    async def _revoked(self, partitions: Assignment) -> None:
        """Store the acks of partitions that this member releases."""
        is_closing = self._closer is not None
        timeout = self._plan.close_timeout / 2 if is_closing else self._plan.close_timeout
        # While the queue closes, only handlers of `run` can still answer.
        waits = not is_closing or self._runner is not None
        left = await self._dispatcher.partitions.release(partitions, timeout, waits=waits)
        if is_closing:
            self._left_in_doubt += left

    def _taken(self, place: StreamPartition) -> None:
        """Store the acks of a partition that another member has begun to read."""

        async def hand_over() -> None:
            await self._dispatcher.partitions.release([place], _HAND_OVER)

        self._spawn(hand_over, "hand-over")

    def _read_from(self, place: StreamPartition, offset: int) -> None:
        self._work.member.fetch_now()
        if place in self._work.readers.partitions():
            self._work.rebalancer.seek(place, StartAt.offset(offset))

    # Tasks

    def _spawn(self, work: Callable[[], Awaitable[None]], name: str) -> None:
        """Start a background task, unless the client is closed."""
        with suppress(ClientClosed):
            child = self._supervised(work, name)
            self._children.add(child)
            child.task.add_done_callback(lambda _: self._children.discard(child))

    def _supervised(self, work: Callable[[], Awaitable[None]], name: str) -> Child:
        return self._network.supervisor.spawn(work, name=f"queue:{self.group}:{name}")
