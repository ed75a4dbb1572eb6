"""The handle of a member of a consumer group: an async context manager and an async iterator."""

from __future__ import annotations

import asyncio
import warnings
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import MappingProxyType, TracebackType
from typing import Final, Self, TypeVar

from liftbridge_aio._core.arguments import (
    INT64_MAX,
    about,
    check_callable,
    check_flags,
    check_partition,
    check_text,
    check_type,
    check_whole_number,
)
from liftbridge_aio._core.public_face import as_one_class
from liftbridge_aio._runtime.bounded_gather import bounded_gather
from liftbridge_aio._subscribe.core.memory_budget import MemoryBudget
from liftbridge_aio._subscribe.cursor_committer import LocatingStore
from liftbridge_aio._subscribe.log_start import count_ahead
from liftbridge_aio._subscribe.subscription_base import MessageSource
from liftbridge_aio.errors import (
    ConcurrentRead,
    InvalidRequest,
    LiftbridgeError,
    NotGroupMember,
    RequestTimeout,
    UsageError,
    WrongType,
)
from liftbridge_aio.model import Message, StartAt, StreamPartition
from liftbridge_aio.net.network import Network
from liftbridge_aio.options import Duration, timer_seconds
from liftbridge_aio.wire.raw_message import RawMessage

from .core.group_plan import Assignment, GroupPlan
from .core.group_state import GroupState
from .handler_runner import MessageHandler, OnError
from .member_runtime import MemberRuntime

T = TypeVar("T")

_ERROR_GRACE: Final = 0.25
"""Seconds after the deadline in which a join step may raise a more precise error."""


@as_one_class
class ConsumerGroup(MessageSource):
    """A member of a consumer group, and an iterator of messages of its assigned partitions.

    Use it inside `async with`; leaving the block commits finished positions and leaves the group.
    A message is finished when the next one is asked for, or when the block is left without an
    exception. Only one task may read at a time. Heartbeats are sent by another task, so processing
    a message may take any time.

    Create one with `Client.group`.
    """

    def __init__(
        self,
        plan: GroupPlan,
        network: Network,
        cursors: LocatingStore,
        budget: MemoryBudget,
    ) -> None:
        self.group = plan.group
        self.streams = plan.streams
        self._plan = plan
        self._network = network
        self._work = MemberRuntime(plan, network, cursors, budget)
        self._core = self._work.member.core
        self._readers = self._work.readers
        self._entered = False

    def __repr__(self) -> str:
        """Return the group, the member, its state and its number of partitions."""
        blocked = f" blocked={len(self.blocked)}" if self.blocked else ""
        return (
            f"<ConsumerGroup {self.group!r} {self.consumer_id} {self.state.value}"
            f" epoch={self.epoch} partitions={len(self.assignment)}{blocked}>"
        )

    # State

    @property
    def consumer_id(self) -> str:
        """The id of this member; if none was given, each join creates a new one."""
        return self._core.consumer

    @property
    def state(self) -> GroupState:
        """The state of the member."""
        return self._core.state

    @property
    def assignment(self) -> Assignment:
        """The partitions of this member: after `on_assigned` and before `on_revoked`."""
        return self._work.rebalancer.ownership.owned

    @property
    def epoch(self) -> int | None:
        """The epoch of the last fetched assignment; None before the first."""
        return self._core.assigned_epoch

    @property
    def coordinator(self) -> str:
        """The id of the broker that coordinates the group; empty before it is known."""
        return self._core.coordinator

    @property
    def positions(self) -> Mapping[StreamPartition, int | None]:
        """The next offset to deliver of each partition; None if not known yet.

        During `on_assigned` and `on_revoked` the partitions in question are included, here and in
        `committed` and `lag`.
        """
        return MappingProxyType(
            {place: self._readers.position(place) for place in self._readers.partitions()}
        )

    @property
    def committed(self) -> Mapping[StreamPartition, int]:
        """The last committed offset of each partition that this member has fetched or stored."""
        stored = self._work.committer.stored
        return MappingProxyType({StreamPartition(*place): at for place, at in stored.items()})

    @property
    def blocked(self) -> Mapping[StreamPartition, LiftbridgeError]:
        """The partitions of this member that currently cannot be read, with the error.

        A `PartitionPaused` stays until the partition is resumed or published to; with
        `unpause=True` this member resumes it. A `StreamReset` stays until `seek`. Other errors are
        retried, and are listed once they have lasted for two seconds.
        """
        return MappingProxyType(self._work.rebalancer.blocked)

    @property
    def paused(self) -> Assignment:
        """The partitions whose delivery is paused until `resume`."""
        return frozenset(self._readers.paused)

    # Lifecycle

    async def __aenter__(self) -> Self:
        """Join the group, wait for the first assignment, and fetch its positions.

        So `pause` and `seek` work immediately. `on_assigned` is called after this, and the
        partitions are in `assignment` once it has returned. A client joins 32 groups at once; the
        timeout of each begins when it is its turn. Cancelling leaves the group again.

        Raises:
            StreamNotFound: a stream does not exist.
            CursorsUnavailable: the server stores no cursors.
            AlreadyMember: a member with this consumer id is in the group.
            NoCommittedPosition: the group has committed nothing, and start=None.
            RequestTimeout: the group was not joined in time.
            ClientClosed: the group or the client was closed meanwhile.
            LiftbridgeError: it could not join.
        """
        if self.state is not GroupState.NEW or self._work.closing:
            raise UsageError("a member joins only once; create a new one")
        async with self._network.joins:
            await self._join()
        self._entered = True
        self._work.begin()
        return self

    async def _join(self) -> None:
        deadline = asyncio.get_running_loop().time() + self._plan.timeout
        try:
            async with asyncio.timeout_at(deadline + _ERROR_GRACE) as limit:
                await self._work.join(deadline)
        except TimeoutError as error:
            state, obstacle = self.state, self._work.member.obstacle
            await self._give_way()
            if isinstance(error, LiftbridgeError) or not limit.expired():
                raise
            text = (
                f"the group {self.group!r}, of {', '.join(map(repr, self.streams))}, was not joined"
                f" within {self._plan.timeout:g} s: the member is {state.value}"
            )
            if obstacle is not None:
                text += f", and the last failed call raised: {obstacle}"
            raise RequestTimeout(text) from obstacle
        except BaseException:
            await self._give_way()
            raise

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Commit, leave the group and close; see `aclose`.

        Raises:
            LiftbridgeError: the last commit failed; not raised if the block raised an exception.
        """
        if exc_type is None and self._work.runner is None:
            self._readers.merge.put_down()
        try:
            await self.aclose()
        except LiftbridgeError:
            if exc_type is None:
                raise

    async def aclose(self) -> None:
        """Stop delivery, call `on_revoked`, commit, and leave the group.

        The message that was returned last is not finished. May be called again, from any task.
        Takes at most the client's close_timeout; cancelling takes effect after that. In a handler
        or a callback it returns immediately, and the group is closed when that has returned.

        Raises:
            LiftbridgeError: the last commit failed. The group was left nevertheless.
        """
        self._entered = False
        await self._work.close()

    async def _give_way(self) -> None:
        try:
            await self.aclose()
        except Exception:  # noqa: BLE001 - the first error is raised
            return

    def __del__(self) -> None:
        if getattr(self, "_entered", False):
            warnings.warn(f"{self!r} was entered but never left", ResourceWarning, stacklevel=2)

    # Reading

    def __aiter__(self) -> Self:
        """Return itself."""
        return self

    async def __anext__(self) -> Message:
        """Return the next message of any partition; wait for one if none is buffered.

        Cancelling loses no message: the next call returns it.

        Raises:
            StopAsyncIteration: the member or its client was closed.
            ConcurrentRead: another task is waiting already, or `run` reads.
            StreamReset: the log of a partition was replaced. The partition is read again after
                `seek`; the next call continues with the other partitions.
            StreamDeleted: all streams of the group were deleted.
            UsageError: the group was not entered.
            LiftbridgeError: a partition cannot be read, or the membership has failed.
            Exception: what a callback raised. Each error is raised once.
        """
        merge = self._readers.merge
        ready: deque[Message] = merge.ready
        if ready:
            return ready.popleft()
        self._check_may_read()
        return await self._taken(merge.take_next())

    async def _take(self, most: int, wait: float) -> list[Message]:
        self._check_may_read()
        return await self._taken(self._readers.merge.take(most, wait))

    async def _take_as(
        self, most: int, wait: float, convert: Callable[[Message], T | None]
    ) -> list[T]:
        self._check_may_read()
        return await self._taken(self._readers.merge.take_as(most, wait, convert))

    async def _take_raw(self, most: int, wait: float) -> list[RawMessage]:
        self._check_may_read()
        return await self._taken(self._readers.merge.take_raw(most, wait))

    async def _taken(self, taking: Awaitable[T]) -> T:
        """Wait for messages; if the group has ended, raise the error that ended it."""
        try:
            return await taking
        except StopAsyncIteration:
            self._work.raise_error()
            raise

    def _check_may_read(self) -> None:
        if self.state is GroupState.NEW and not self._work.closing:
            raise UsageError("a group is read inside `async with`: entering it joins the group")
        if self._work.runner is not None:
            raise ConcurrentRead("the group is already read by `run`")

    async def run(
        self,
        handler: MessageHandler,
        *,
        concurrency: int = 1,
        on_error: OnError = "stop",
        stop_on_signals: bool = True,
    ) -> None:
        """Call a handler for each message, until the group is closed, a signal, or an error.

        The messages of a partition are handled in order, one at a time. Partitions are handled
        concurrently, and take turns if there are more than `concurrency`. A message is finished
        when its handler has returned. Only then is it committed: every `commit_interval`, when its
        partition is given up, and before this returns or raises.

            async def handle(message: Message) -> None:
                await store(message.value)

            async with client.group("billing", ["orders"]) as group:
                await group.run(handle, concurrency=8)

        A revoked partition is released after its handler has returned, or after `close_timeout`; a
        message that takes longer is handled again by the new owner. On SIGTERM, and the first
        Ctrl-C, no further message is handled, and this returns when the running handlers have
        returned and the positions are committed. A second Ctrl-C interrupts them. The interceptors
        of the client wrap the handler. Inside it the group may be used, but not read.

        Cancelling cancels the running handlers, waits for them, and commits; their messages are not
        finished.

        Args:
            handler: a coroutine function, or a plain function, which runs on the event loop and
                must not block. What it returns is ignored.
            concurrency: the maximum of partitions handled concurrently.
            on_error: the effect of an exception of the handler. "stop": no further message is
                handled, the running handlers finish, and the exception is raised; its message is
                not finished, and a later `run` begins with it. "skip": it is logged, and the
                message counts as finished. Both are reported to the hook (`handler_failed`).
            stop_on_signals: stop on SIGTERM and Ctrl-C too, if this runs in the main thread. A
                handler of the signal that the program installed is called as well, and restored at
                the end. False leaves signals alone.

        Raises:
            ConcurrentRead: the group is being read already.
            UsageError: the group was not entered.
            InvalidRequest: an argument is invalid.
            LiftbridgeError: as in iteration, or positions could not be committed.
            Exception: raised by the handler, with stream, partition and offset as a note.
        """
        check_callable(handler, "the handler")
        check_whole_number(concurrency, "concurrency", 1, INT64_MAX)
        if on_error not in {"stop", "skip"}:
            raise InvalidRequest(f"on_error is 'stop' or 'skip', not {on_error!r}")
        check_flags(stop_on_signals=stop_on_signals)
        self._check_may_read()
        await self._work.run(
            handler, concurrency=concurrency, on_error=on_error, stop_on_signals=stop_on_signals
        )

    # Positions

    async def commit(self, message: Message | RawMessage | None = None) -> None:
        """Commit the finished position of each partition now.

        A lower position never replaces a higher one. Cancelling abandons the wait; positions may
        be stored or not.

        Args:
            message: marked as finished, with all before it in its partition. None: commit the
                finished positions of all partitions.

        Raises:
            NotGroupMember: the partition of the message is no longer assigned to this member, or
                the group has not confirmed the membership in time.
            LiftbridgeError: a position could not be stored.
        """
        places: Iterable[tuple[str, int]] | None = None
        if message is not None:
            check_type(message, (Message, RawMessage), "commit takes a message that was read")
            place = StreamPartition(message.stream, message.partition)
            is_ours = self._readers.finish(place, message.offset)
            if not is_ours or place in self._work.rebalancer.taken:
                raise NotGroupMember(
                    "the partition is not assigned to this member",
                    stream=place.stream,
                    partition=place.partition,
                )
            places = [place]
        await self._work.committer.commit(places)

    def pause(self, *partitions: tuple[str, int]) -> None:
        """Pause delivery from these partitions, or from all, until they are resumed.

        Raises:
            NotGroupMember: one of them is not assigned to this member.
        """
        self._readers.pause(self._chosen(partitions))

    def resume(self, *partitions: tuple[str, int]) -> None:
        """Resume delivery from these partitions, or from all.

        Raises:
            NotGroupMember: one of them is not assigned to this member.
        """
        self._readers.resume(self._chosen(partitions))

    async def seek(self, stream: str, partition: int, position: int | StartAt) -> None:
        """Move to another position of a partition; works in `on_assigned` too.

        Offsets below the committed one are delivered, but not committed again, except after a
        `StreamReset` (but v1.9.0 servers recover the highest position after a restart). Cancelling
        may leave the partition where it was.

        Raises:
            NotGroupMember: the partition is not assigned to this member.
            InvalidRequest: the position is invalid.
            LiftbridgeError: after a `StreamReset`, the committed position could not be fetched.
        """
        [place] = self._chosen([(stream, partition)])
        if not isinstance(position, StartAt):
            position = StartAt.offset(position)
        log = None
        if place in self._work.rebalancer.resets:
            await self._work.start_positions.renew({place.stream})
            log = await self._work.start_positions.locate(place)
            self._work.cursors.may_replace(place, log.position)
            self._chosen([place])  # still
        self._work.rebalancer.seek(place, position, log)

    async def lag(self, *, timeout: Duration | None = None) -> dict[StreamPartition, int]:
        """Return the number of undelivered messages of each partition, as reported by its leader.

        They are counted from `positions` to the newest committed message, both included; see
        `Subscription.lag`. Cancelling abandons the calls.

        Raises:
            LiftbridgeError: a leader did not answer.
        """
        limit = self._plan.timeout if timeout is None else timer_seconds(timeout, "timeout")

        async def behind(place: StreamPartition) -> int:
            position, received = self._readers.position(place), self._readers.received(place)
            return await count_ahead(self._network, *place, position, received, limit)

        places = sorted(self._readers.partitions())
        try:
            async with asyncio.timeout(limit):
                counts = await bounded_gather(places, behind)
        except TimeoutError as error:
            if isinstance(error, LiftbridgeError):
                raise
            raise RequestTimeout(f"the leaders did not answer within {limit:g} s") from None
        return dict(zip(places, counts, strict=True))

    def _chosen(self, partitions: Iterable[tuple[str, int]]) -> list[StreamPartition]:
        known = self._readers.partitions()
        for place in partitions:
            text = "a partition of a group must be a StreamPartition or a tuple like (name, 0)"
            check_type(place, tuple, text)
            if len(place) != len(StreamPartition._fields):
                raise WrongType(f"{text}, not {place!r}")
            check_text(place[0], "a stream name")
            with about(place[0]):
                check_partition(place[1])
        chosen = [StreamPartition(*place) for place in partitions] or known
        for place in chosen:
            if place not in known:
                raise NotGroupMember(
                    "the partition is not assigned to this member",
                    stream=place.stream,
                    partition=place.partition,
                )
        return chosen
