"""The handle of one member of a consumer group: an async context manager and an async iterator."""

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
from liftbridge_aio._core.bounded_gather import bounded_gather
from liftbridge_aio._subscribe.core.memory_budget import MemoryBudget
from liftbridge_aio._subscribe.cursor_committer import CursorStore
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
"""Seconds beyond the deadline for a step of joining to raise its own, more precise error."""


class ConsumerGroup(MessageSource):
    """One member of a consumer group, and the messages of the partitions that are assigned to it.

    Use it inside `async with`; leaving the block commits what is finished, then leaves the group.
    A message is finished when the next one is asked for, or when the block is left without an
    exception. One task may read at a time. Heartbeats are sent by another task, so processing a
    message may take any time.

    Make one with `Client.group`.
    """

    def __init__(
        self,
        plan: GroupPlan,
        network: Network,
        cursors: CursorStore,
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
        """Show the group, the member, its state and its number of partitions."""
        blocked = f" blocked={len(self.blocked)}" if self.blocked else ""
        return (
            f"<ConsumerGroup {self.group!r} {self.consumer_id} {self.state.value}"
            f" epoch={self.epoch} partitions={len(self.assignment)}{blocked}>"
        )

    # State

    @property
    def consumer_id(self) -> str:
        """The id of this member; if none was given, each joining makes a new one."""
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
        """The epoch of the group in which the assignment was last fetched; None before that."""
        return self._core.assigned_epoch

    @property
    def coordinator(self) -> str:
        """Id of the broker that coordinates the group; empty before it is known."""
        return self._core.coordinator

    @property
    def positions(self) -> Mapping[StreamPartition, int | None]:
        """The offset from which each partition is handed out next; None if not known yet.

        During `on_assigned` and `on_revoked` the partitions in question are included, here and in
        `committed` and `lag`.
        """
        return MappingProxyType(
            {place: self._readers.position(place) for place in self._readers.partitions()}
        )

    @property
    def committed(self) -> Mapping[StreamPartition, int]:
        """The last committed offset of each partition, as far as this member read or wrote it."""
        stored = self._work.committer.stored
        return MappingProxyType({StreamPartition(*place): at for place, at in stored.items()})

    @property
    def blocked(self) -> Mapping[StreamPartition, LiftbridgeError]:
        """The partitions of this member that cannot be read for now, with the error.

        A `PartitionPaused` stays until the partition is resumed or somebody publishes to it; with
        `resume=True` this member resumes it. A `StreamReset` stays until `seek`. Everything else is
        retried, and is shown once it has failed for two seconds.
        """
        return MappingProxyType(self._work.rebalancer.blocked)

    @property
    def paused(self) -> Assignment:
        """Partitions of which nothing is handed out until they are resumed."""
        return frozenset(self._readers.paused)

    # Life

    async def __aenter__(self) -> Self:
        """Join the group, wait for the first assignment, and fetch its positions.

        So `pause` and `seek` work at once. `on_assigned` is called after this, and the partitions
        are in `assignment` once it has returned. Cancelling leaves the group again.

        Raises:
            StreamNotFound: a stream does not exist.
            CursorsUnavailable: the server keeps no cursors.
            AlreadyMember: a member with this consumer id is in the group.
            NoCommittedPosition: the group has committed nothing, and start=None.
            RequestTimeout: the group was not joined in time.
            ClientClosed: this, or the client, was closed meanwhile.
            LiftbridgeError: it could not join.
        """
        if self.state is not GroupState.NEW or self._work.closing:
            text = "a member joins once; make a new one"
            raise UsageError(text)
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
                text += f", and the last call that failed said: {obstacle}"
            raise RequestTimeout(text) from obstacle
        except BaseException:
            await self._give_way()
            raise
        self._entered = True
        self._work.begin()
        return self

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
        """Hand out nothing more, call `on_revoked`, commit, and leave the group.

        The message that was returned last is not finished. May be called again, from any task.
        Takes at most the client's close_timeout; cancelling takes effect after that. In a handler
        or a callback it returns at once, and the group ends when that has returned.

        Raises:
            LiftbridgeError: the last commit failed. The group was left all the same.
        """
        self._entered = False
        await self._work.close()

    async def _give_way(self) -> None:
        try:
            await self.aclose()
        except Exception:  # noqa: BLE001 - what went wrong first is what is raised
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
            StreamReset: the log of a partition is not the one that the group has read. It is read
                again after `seek`; the other partitions are read on by the next call.
            StreamDeleted: all streams of the group were deleted.
            UsageError: it was not entered.
            LiftbridgeError: a partition cannot be read, or the membership cannot go on.
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
        """Wait for messages; if the group has ended instead, raise the error that ended it."""
        try:
            return await taking
        except StopAsyncIteration:
            self._work.raise_error()
            raise

    def _check_may_read(self) -> None:
        if self.state is GroupState.NEW and not self._work.closing:
            text = "a group is read inside `async with`: entering it joins the group"
            raise UsageError(text)
        if self._work.runner is not None:
            text = "the group is read by `run` already"
            raise ConcurrentRead(text)

    async def run(
        self,
        handler: MessageHandler,
        *,
        concurrency: int = 1,
        on_error: OnError = "stop",
        stop_on_sigterm: bool = True,
    ) -> None:
        """Call a handler for each message, until the group is closed, SIGTERM, or an error.

        The messages of a partition are handled in order, one after the other; several partitions
        are handled at once, and take turns if there are more of them than `concurrency`. A message
        is finished when its handler has returned: only then is it committed, every
        `commit_interval`, when its partition is given up, and before this returns or raises.

            async def handle(message: Message) -> None:
                await store(message.value)

            async with client.group("billing", ["orders"]) as group:
                await group.run(handle, concurrency=8)

        A partition that is revoked waits for its handler before it is given up, `close_timeout` at
        most; a message that takes longer is handled again by the member that has the partition
        then. On SIGTERM no further message is handled, and this returns when the handlers that run
        have returned and the positions are committed. The interceptors of the client wrap the
        handler. Inside it the group may be used, but not read.

        Cancelling cancels the handlers that run, waits for them, and commits; their messages are
        not finished.

        Args:
            handler: a coroutine function, or a plain function, which runs on the event loop and
                must not block. What it returns is ignored.
            concurrency: how many partitions are handled at once.
            on_error: what an exception of the handler does. "stop": no further message is handled,
                the handlers that run go on to their end, and the exception is raised; its message
                is not finished, and a later `run` begins with it. "skip": it is logged, and the
                message counts as finished. Both are reported to the hook (`handler_failed`).
            stop_on_sigterm: stop on SIGTERM too, where this runs in the main thread. A handler of
                the signal that is installed already is called as well, and restored at the end.
                False leaves signals alone.

        Raises:
            ConcurrentRead: the group is being read already.
            UsageError: the group was not entered.
            InvalidRequest: an argument makes no sense.
            LiftbridgeError: what iterating raises, or positions could not be committed.
            Exception: what the handler raised, with stream, partition and offset as a note.
        """
        check_callable(handler, "the handler")
        check_whole_number(concurrency, "concurrency", 1, INT64_MAX)
        if on_error not in {"stop", "skip"}:
            text = f"on_error is 'stop' or 'skip', not {on_error!r}"
            raise InvalidRequest(text)
        check_flags(stop_on_sigterm=stop_on_sigterm)
        self._check_may_read()
        await self._work.run(
            handler, concurrency=concurrency, on_error=on_error, stop_on_sigterm=stop_on_sigterm
        )

    # Positions

    async def commit(self, message: Message | RawMessage | None = None) -> None:
        """Commit the finished position of each partition now.

        A lower position never replaces a higher one. Cancelling abandons the wait; positions may
        be stored or not.

        Args:
            message: counts as finished, with all before it in its partition. None: what is
                finished in all partitions.

        Raises:
            NotGroupMember: the partition of the message is not assigned to this member any more,
                or the group has not confirmed in time that this is a member.
            LiftbridgeError: a position could not be stored.
        """
        places: Iterable[tuple[str, int]] | None = None
        if message is not None:
            check_type(message, (Message, RawMessage), "a message that was read is committed")
            place = StreamPartition(message.stream, message.partition)
            is_ours = self._readers.finish(place, message.offset)
            if not is_ours or place in self._work.rebalancer.taken:
                text = "the partition is not assigned to this member"
                raise NotGroupMember(text, stream=place.stream, partition=place.partition)
            places = [place]
        await self._work.committer.commit(places)

    def pause(self, *partitions: tuple[str, int]) -> None:
        """Hand out no messages of these partitions, or of all, until they are resumed.

        Raises:
            NotGroupMember: one of them is not assigned to this member.
        """
        self._readers.pause(self._chosen(partitions))

    def resume(self, *partitions: tuple[str, int]) -> None:
        """Hand out messages of these partitions, or of all, again.

        Raises:
            NotGroupMember: one of them is not assigned to this member.
        """
        self._readers.resume(self._chosen(partitions))

    async def seek(self, stream: str, partition: int, position: int | StartAt) -> None:
        """Read a partition from another position; works in `on_assigned` too.

        Offsets below the committed one are read, but not committed again. After a `StreamReset`
        they are, although they are lower (but v1.9.0 servers recover the highest position after a
        restart). Cancelling may leave the partition where it was.

        Raises:
            NotGroupMember: the partition is not assigned to this member.
            InvalidRequest: the position makes no sense.
            LiftbridgeError: after a `StreamReset`, the committed position could not be fetched.
        """
        [place] = self._chosen([(stream, partition)])
        if not isinstance(position, StartAt):
            position = StartAt.offset(position)
        if place in self._work.rebalancer.resets:
            self._work.cursors.may_replace(place, await self._work.committer.fetch(*place))
            self._chosen([place])  # still
        self._work.rebalancer.seek(place, position)

    async def lag(self, *, timeout: Duration | None = None) -> dict[StreamPartition, int]:
        """Ask the leaders how many messages of each partition can be read and were not handed out.

        They are counted from `positions` to the newest committed message, both included; see
        `Subscription.lag`. Cancelling abandons the calls.

        Raises:
            LiftbridgeError: a leader could not be asked.
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
            text = f"the leaders did not answer within {limit:g} s"
            raise RequestTimeout(text) from None
        return dict(zip(places, counts, strict=True))

    def _chosen(self, partitions: Iterable[tuple[str, int]]) -> list[StreamPartition]:
        known = self._readers.partitions()
        for place in partitions:
            text = "a partition of a group is a StreamPartition, as (name, 0)"
            check_type(place, tuple, text)
            if len(place) != len(StreamPartition._fields):
                message = f"{text}, not {place!r}"
                raise WrongType(message)
            check_text(place[0], "a stream name")
            with about(place[0]):
                check_partition(place[1])
        chosen = [StreamPartition(*place) for place in partitions] or known
        for place in chosen:
            if place not in known:
                text = "the partition is not assigned to this member"
                raise NotGroupMember(text, stream=place.stream, partition=place.partition)
        return chosen
