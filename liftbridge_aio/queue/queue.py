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
"""Seconds for answers before the acks of a partition are stored that another member reads already.

It waits 0.25 s before it looks for them.
"""


class Queue(Generic[DeliveryT]):
    """A member of a queue, and an iterator of the deliveries of its partitions.

    Use it inside `async with`; leaving the block stores the acks and leaves the group. Any number
    of tasks may iterate over it. Create one with `Client.queue`.
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
        self._work = self._member._work  # noqa: SLF001 - the queue takes the place of its reader
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
        self._runner: DeliveryRunner | None = None
        self._children: set[Child] = set()
        self._closer: Child | None = None
        self._close_error: LiftbridgeError | None = None
        self._entered = False
        self._left_in_doubt = 0
        """Transactions that could not be finished while the queue was being closed."""

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
            resume=plan.options.resume,
            resumed=frozenset(self._tiers.streams.values() if self._tiers else ()),
            make_visibility=plan.make_visibility,
            timeout=plan.timeout,
            close_timeout=plan.close_timeout,
        )

    def __repr__(self) -> str:
        """Show the stream, the group, the state and the number of partitions."""
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
        """The partitions that this member reads."""
        return self._member.assignment

    @property
    def blocked(self) -> Mapping[StreamPartition, LiftbridgeError]:
        """The partitions of this member that currently cannot be read, with the error.

        A `PartitionPaused` stays until the partition is resumed or published to; with `resume=True`
        this member resumes it. Other errors are retried, and are listed once they have lasted for
        two seconds.
        """
        return self._member.blocked

    @property
    def consumer_id(self) -> str:
        """The id of this member."""
        return self._member.consumer_id

    def statistics(self) -> QueueStatistics:
        """Return counts of this member since it was entered."""
        return self._dispatcher.statistics()

    def explain(self) -> list[str]:
        """Return what is not settled and what it waits for, in sentences; for a log or a console.

        Empty if everything that was read is settled, all partitions can be read, and no failure
        slows the queue down.
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
        """Join the group and begin to read. Cancelling leaves the group again.

        Raises:
            StreamNotFound: the stream, or that of dead letters, does not exist.
            StreamReset: it was created again with more partitions; `unsubscribe` begins anew.
            AlreadyMember: another holder of the durable subscription is alive.
            RequestTimeout: the group was not joined in time.
            ConnectionFailed: no server of `nats` answered.
            LiftbridgeError: it could not join.
        """
        options = self._plan.options
        if self._entered or self._closer is not None:
            raise UsageError("a queue is entered only once; create a new one")
        if options.dead_letter is not None:
            await self._check_dead_letters(options.dead_letter.stream)
        # A stream that was created again may have other partitions than are known.
        timeout = self._plan.timeout
        found = await self._network.metadata.stream(self.stream, timeout, renew=True)
        if self._plan.is_ephemeral:
            await self._forget_if_over()  # a last member may have been killed
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
        """Refuse a stream that does not exist: no dead letter could be stored.

        Raises:
            StreamNotFound: it does not.
        """
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
            LiftbridgeError: the group was not left in order; not raised if the block raised an
                exception.
        """
        try:
            await self.aclose()
        except LiftbridgeError:
            if exc_type is None:
                raise

    async def aclose(self) -> None:
        """Hand out nothing more, wait for handlers of `run`, store the acks, leave the group.

        Transactions of deliveries whose commit is in doubt are finished before.
        Deliveries that are not answered by then are delivered again, by this or another member.
        May be called again, from any task. Takes at most the client's close_timeout; cancelling
        takes effect after that. In a handler of `run` it returns at once, and the queue is closed
        when the handler has returned.

        Raises:
            CommitInDoubt: a transaction could not be finished in time; the next owner of its
                partition finishes it.
            LiftbridgeError: the group was not left in order.
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
            await self._close()  # the client was closed: no task is left to wait for
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
                    f"{self._left_in_doubt} transactions of deliveries are in doubt: the next owner"
                    " of their partition finishes them"
                )
                error = CommitInDoubt(text, stream=self.stream)
                error.hint = "nothing was deleted; enter the queue again to finish them"
                raise error
            if self._plan.is_ephemeral:
                with suppress(ClientClosed):  # the next first member forgets it
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
        """Close, and forget the acks of the group if this was its last member.

        The next member of the group then begins at its `start`. Cancelling may leave them stored.

        Raises:
            CommitInDoubt: a transaction could not be finished, so nothing is forgotten.
            LiftbridgeError: the group was not left in order, or the acks could not be deleted.
        """
        await self.aclose()
        await self._forget_if_over()

    async def _forget_if_over(self) -> None:
        """Forget what is stored of the group if it has no members."""
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
        """Return itself."""
        return self

    async def __anext__(self) -> DeliveryT:
        """Return the next delivery of any partition; wait for one if there is none.

        Cancelling loses no message.

        Raises:
            StopAsyncIteration: the queue or its client was closed.
            TooManyDeadLetters: the limit of dead letters was reached.
            UsageError: the queue was not entered.
            LiftbridgeError: a partition cannot be read, or the membership has failed.
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
        max: int = 100,  # noqa: A002 - says it best where it is called
        wait: Duration = 0.0,
    ) -> DeliveryBatches[DeliveryT]:
        """Iterate over lists of deliveries, never empty, each of which may be answered as one.

            async for batch in queue.batches(max=100, wait=0.5):
                async with batch:
                    await store([delivery.value for delivery in batch])

        A list is returned as soon as it has `max` deliveries, or `wait` seconds after its first
        one, or as soon as no more may be in flight. `ack_wait` begins for each when it is taken.

        Args:
            max: deliveries in a list, at most.
            wait: seconds to wait for more than one; 0 takes what is there.

        Raises:
            InvalidRequest: an argument makes no sense.
        """
        check_whole_number(max, "max", 1, INT64_MAX)
        return DeliveryBatches(self, self._dispatcher, max, timer_seconds(wait, "wait"))

    def with_values(self, decode: Callable[[Message], T]) -> Queue[ValueDelivery[T]]:
        """Return this queue, whose deliveries have decoded values; before it is entered.

        `TypedStream.queue` calls it.

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

        A delivery is acked when its handler has returned, and nacked if it raises an exception,
        which is logged and reported to the hook (`handler_failed`); `Nack` and `Reject` say what
        else to do. A handler may also answer its delivery itself.

            async def handle(delivery: Delivery) -> None:
                await store(delivery.value)

            async with client.queue("orders", group="billing") as queue:
                await queue.run(handle, concurrency=16)

        On SIGTERM, and the first Ctrl-C, nothing more is handed out, and this returns when the
        running handlers have returned. The interceptors of the client wrap the handler. Cancelling
        cancels the running handlers and waits for them; their deliveries are not answered.

        Args:
            handler: a coroutine function, or a plain function, which runs on the event loop and
                must not block. What it returns is ignored.
            concurrency: the maximum of deliveries handled concurrently.
            on_timeout: what happens to a handler that has not answered within ack_wait: "cancel"
                cancels it; with "continue" it runs on while its message is delivered again.
            stop_on_signals: stop on SIGTERM and Ctrl-C too, if this runs in the main thread.

        Raises:
            UsageError: the queue was not entered, or `run` runs already.
            InvalidRequest: an argument is invalid.
            TooManyDeadLetters: the limit of dead letters was reached.
            LiftbridgeError: a partition cannot be read, or the membership has failed.
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
        """Publish a message for this group only, which is handed out after a delay.

        It waits in the retry stream of the shortest tier that is long enough. Cancelling may leave
        it stored.

        Args:
            value: the message.
            delay: seconds, as a lower bound; at most the longest tier.
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
                "messages wait in retry streams: give the queue retry_streams=RetryStreams(...)",
                stream=self.stream,
            )
        wait, longest = seconds(delay, "delay"), self._plan.tiers[-1]
        if wait > longest:
            raise InvalidRequest(
                f"a delay of {wait:g} s is longer than the longest tier, {longest:g} s",
                stream=self.stream,
            )
        # Forwarded headers of another queue would tell a wrong origin.
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
        """Claim partitions of which transactions are not over, before there is anything to read."""
        for place in self._store.unfinished & partitions:
            self._dispatcher.partitions.claim(place, 0)

    async def _revoked(self, partitions: Assignment) -> None:
        """Store the acks of partitions that this member gives up."""
        is_closing = self._closer is not None
        timeout = self._plan.close_timeout / 2 if is_closing else self._plan.close_timeout
        # Only handlers answer while the queue is being closed.
        waits = not is_closing or self._runner is not None
        left = await self._dispatcher.partitions.release(partitions, timeout, waits=waits)
        if is_closing:
            self._left_in_doubt += left

    def _taken(self, place: StreamPartition) -> None:
        """Store the acks of a partition that another member reads already."""

        async def hand_over() -> None:
            await self._dispatcher.partitions.release([place], _HAND_OVER)

        self._spawn(hand_over, "hand-over")

    def _read_from(self, place: StreamPartition, offset: int) -> None:
        self._work.member.fetch_now()
        if place in self._work.readers.partitions():
            self._work.rebalancer.seek(place, StartAt.offset(offset))

    # Tasks

    def _spawn(self, work: Callable[[], Awaitable[None]], name: str) -> None:
        """Run a task in the background, unless the client is closed."""
        with suppress(ClientClosed):
            child = self._supervised(work, name)
            self._children.add(child)
            child.task.add_done_callback(lambda _: self._children.discard(child))

    def _supervised(self, work: Callable[[], Awaitable[None]], name: str) -> Child:
        return self._network.supervisor.spawn(work, name=f"queue:{self.group}:{name}")
