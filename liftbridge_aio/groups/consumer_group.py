"""The handle of one member of a consumer group: an async context manager and an async iterator."""

from __future__ import annotations

import asyncio
import warnings
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType, TracebackType
from typing import Final, Literal, Self, TypeVar, overload

from liftbridge_aio.arguments import INT64_MAX, check_whole_number
from liftbridge_aio.batches import Batches
from liftbridge_aio.cursor_keeper import CursorKeeper, CursorStore
from liftbridge_aio.errors import (
    ClientClosed,
    LiftbridgeError,
    NotGroupMember,
    RequestTimeout,
    UsageError,
)
from liftbridge_aio.for_each import for_each
from liftbridge_aio.model import Message, StartAt
from liftbridge_aio.net.connection import Connection
from liftbridge_aio.net.supervisor import Child, wait_despite_cancellation
from liftbridge_aio.options import Duration, timer_seconds
from liftbridge_aio.raw_message import RawMessage
from liftbridge_aio.read_budget import ReadBudget
from liftbridge_aio.reading import Reading
from liftbridge_aio.reading_plan import ConsumerIdentity, ReadingPlan
from liftbridge_aio.telemetry import GroupChanged

from .assignment import Assignment, StreamPartition
from .calls import GroupCalls
from .group_reading import GroupReading
from .guarded_cursors import GuardedCursors, group_cursor
from .handover import Handover
from .member import Member
from .membership import GroupState
from .rebalancer import Handler, Rebalancer
from .starts import Starts

_LONGEST_COMMIT: Final = 3.0
"""Seconds to store a position. A server stores one after the other, and waits until this deadline
for one that went to a leader which has just died; the next try goes to the new leader."""


T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPlan:
    """The arguments of `Client.group`, defaults filled in."""

    group: str
    streams: tuple[str, ...]
    consumer_id: str | None
    start: StartAt | None
    commit_interval: float | None
    on_assigned: Handler | None
    on_revoked: Handler | None
    timeout: float
    """Seconds to join, and for each call of its own."""
    close_timeout: float


class ConsumerGroup:
    """One member of a consumer group, and the messages of the partitions that are assigned to it.

    Use it inside `async with`; leaving the block commits what is finished, then leaves the group.
    A message is finished when the next one is asked for, or when the block is left without an
    exception. One task may read at a time; the sign of life is given by another one, so a message
    may take as long as it likes.

    Make one with `Client.group`.
    """

    def __init__(
        self,
        plan: GroupPlan,
        connection: Connection,
        cursors: CursorStore,
        budget: ReadBudget,
    ) -> None:
        self.group = plan.group
        self.streams = plan.streams
        self._plan = plan
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._member = Member(
            GroupCalls(plan.group, plan.streams, connection),
            plan.consumer_id,
            self._changed,
        )
        self._readings = GroupReading(
            lambda plan: Reading(plan, connection, budget),
            self._reading_plan,
            self._ended,
            connection.reporter.delivered,
        )
        guarded = GuardedCursors(cursors, self._may_commit, self._free_from)
        self._keeper = CursorKeeper(
            group_cursor(plan.group),
            guarded,
            timeout=min(plan.timeout, _LONGEST_COMMIT),
            failed=connection.reporter.commit_failed,
        )
        self._handover = Handover(
            self._readings,
            self._keeper,
            guarded,
            self._background,
            connection.reporter.commit_failed,
            min(plan.timeout, 3.0),
        )
        self._rebalancer = Rebalancer(
            plan.group,
            self._member,
            self._readings,
            self._keeper,
            Starts(plan.group, plan.start, guarded, connection.metadata, min(plan.timeout, 3.0)),
            self._handover,
            on_assigned=plan.on_assigned,
            on_revoked=plan.on_revoked,
            commits=plan.commit_interval is not None,
            blocked=connection.reporter.partition_blocked,
        )
        self._cursors = guarded
        self._children: list[Child] = []
        self._passing: list[Child] = []
        self._told: tuple[object, ...] = ()
        self._stable = asyncio.Event()
        self._error: BaseException | None = None
        self._error_seen = False
        self._closing: asyncio.Task[None] | None = None
        self._entered = False

    def __repr__(self) -> str:
        """Show the group, the member, and how it is."""
        return (
            f"<ConsumerGroup {self.group!r} {self.consumer_id} {self.state.value}"
            f" epoch={self.epoch} partitions={len(self.assignment)}>"
        )

    # How things stand

    @property
    def consumer_id(self) -> str:
        """The id under which this is a member; one that was not given changes with each joining."""
        return self._member.core.consumer

    @property
    def state(self) -> GroupState:
        """How the member is."""
        return self._member.core.state

    @property
    def assignment(self) -> Assignment:
        """The partitions that are this member's: `on_assigned` was told, `on_revoked` was not."""
        return self._rebalancer.ownership.owned

    @property
    def epoch(self) -> int | None:
        """The epoch of the group in which the assignment was heard last; None before that."""
        return self._member.core.assigned_epoch

    @property
    def coordinator(self) -> str:
        """Id of the broker that coordinates the group; empty before it is known."""
        return self._member.core.coordinator

    @property
    def positions(self) -> Mapping[StreamPartition, int | None]:
        """The offset from which each partition is handed out next; None where not known yet."""
        return MappingProxyType(
            {place: self._readings.position(place) for place in self.assignment}
        )

    @property
    def committed(self) -> Mapping[StreamPartition, int]:
        """The last offset of each partition that this member found or made committed."""
        stored = {StreamPartition(*place): at for place, at in self._keeper.stored.items()}
        return MappingProxyType(
            {place: at for place, at in stored.items() if place in self.assignment}
        )

    @property
    def paused(self) -> Assignment:
        """Partitions of which nothing is handed out until they are resumed."""
        return frozenset(self._readings.paused) & self.assignment

    # Life

    async def __aenter__(self) -> Self:
        """Join the group, wait for the first assignment, and look up where it begins.

        Cancelling leaves the group again.

        Raises:
            StreamNotFound: a stream does not exist.
            CursorsUnavailable: the server keeps no cursors.
            AlreadyMember: somebody with this consumer id is in the group.
            NoCommittedPosition: the group has committed nothing, and start=None.
            RequestTimeout: not in time.
            LiftbridgeError: it could not join.
        """
        if self.state is not GroupState.NEW or self._closing is not None:
            text = "a member joins once; make a new one"
            raise UsageError(text)
        deadline = self._loop.time() + self._plan.timeout
        try:
            async with asyncio.timeout_at(deadline) as limit:
                await self._join(deadline)
        except TimeoutError as error:
            await self._give_way()
            if isinstance(error, LiftbridgeError) or not limit.expired():
                raise
            text = f"the group {self.group!r} was not joined within {self._plan.timeout:g} s"
            raise RequestTimeout(text) from None
        except BaseException:
            await self._give_way()
            raise
        self._entered = True
        self._rebalancer.begin()
        return self

    async def _join(self, deadline: float) -> None:
        plan = self._plan
        for stream in plan.streams:
            await self._connection.metadata.stream(stream)
        # Without cursors nothing works, so that is better said at once.
        await self._cursors.fetch(group_cursor(plan.group), plan.streams[0], 0, plan.timeout)
        left = max(deadline - self._loop.time(), 0.0)
        self._member.begin(0.75 * left)  # so that there is time to say why not
        self._spawn(self._member.run, "member")
        self._spawn(self._rebalancer.run, "rebalancer")
        interval = plan.commit_interval
        if interval is not None:
            self._spawn(lambda: self._keeper.run(interval), "commits")
        await self._stable.wait()
        await self._rebalancer.looked.wait()
        if self._error is not None:
            self._error_seen = True
            raise self._error

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Commit, leave the group and end; see `aclose`.

        Raises:
            LiftbridgeError: the last commit failed; not where another exception is on its way.
        """
        if exc_type is None:
            self._readings.merge.put_down()
        try:
            await self.aclose()
        except LiftbridgeError:
            if exc_type is None:
                raise

    async def aclose(self) -> None:
        """Hand out nothing more, call `on_revoked`, commit, and leave the group.

        The message in hand does not count as finished. May be called again, from any task. Bounded
        by the client's close_timeout; cancelling does not keep it from ending.

        Raises:
            LiftbridgeError: the last commit failed. The group was left all the same.
        """
        self._entered = False
        if self._closing is None:
            self._closing = asyncio.create_task(
                self._close(), name=f"liftbridge_aio:leave:{self.group}"
            )
            self._closing.add_done_callback(_seen)
        closing = self._closing
        await wait_despite_cancellation(asyncio.wait({closing}), self._plan.close_timeout + 1.0)
        if closing.done() and not closing.cancelled():
            error = closing.exception()
            if error is not None:
                raise error  # to each who closes it

    async def _give_way(self) -> None:
        try:
            await self.aclose()
        except Exception:  # noqa: BLE001 - what went wrong first is what is raised
            return

    async def _close(self) -> None:
        deadline = self._loop.time() + self._plan.close_timeout
        failure: LiftbridgeError | None = None
        try:
            if self._children:
                self._rebalancer.end()
                self._readings.merge.finish()
                # Half of the time, so that there is some left to leave.
                async with asyncio.timeout(self._plan.close_timeout / 2):
                    await self._children[1].wait()
                    await self._commit_rest()
        except LiftbridgeError as error:
            failure = error
        except TimeoutError:
            failure = RequestTimeout("on_revoked and the last commit took longer than they may")
        finally:
            self._readings.close()
            self._readings.merge.finish()
            for child in (*self._children[1:], *self._passing):
                child.cancel()
            await self._leave(deadline)
        self._raise_error()
        if failure is not None:
            raise failure

    async def _commit_rest(self) -> None:
        """Commit what the rebalancer has not, where it ended with an error."""
        try:
            if self._plan.commit_interval is not None:
                await self._keeper.commit()
        except LiftbridgeError:
            if self._error is None:
                raise

    async def _leave(self, deadline: float) -> None:
        if not self._children:
            return
        member = self._children[0]
        self._member.leave(max(deadline - self._loop.time(), 0.5))
        try:
            async with asyncio.timeout(max(deadline - self._loop.time(), 0.5) + 0.25):
                await member.wait()
        except TimeoutError:
            member.cancel()

    def _spawn(self, work: Callable[[], Awaitable[None]], name: str) -> None:
        async def run() -> None:
            try:
                await work()
            except asyncio.CancelledError:
                self._stop(None)
                raise
            except Exception as error:  # noqa: BLE001 - raised to the reader
                self._stop(error)

        child = self._connection.supervisor.spawn(run, name=f"group:{self.group}:{name}")
        self._children.append(child)

    def _stop(self, error: BaseException | None) -> None:
        """End, because a part of this has ended; the reader gets the error."""
        if self._error is None:
            self._error = error
        if self._closing is None:
            self._readings.stop(self._readings.places())
        self._readings.merge.finish()
        self._stable.set()
        self._rebalancer.looked.set()

    def __del__(self) -> None:
        if getattr(self, "_entered", False):
            warnings.warn(f"{self!r} was entered but never left", ResourceWarning, stacklevel=2)

    # What the member and its readings tell

    def _changed(self) -> None:
        core = self._member.core
        if self._closing is None:
            self._rebalancer.follow()
        now = (core.consumer, core.state.value, core.epoch, core.coordinator)
        if now != self._told:
            self._told = now
            self._connection.reporter.group_changed(
                GroupChanged(
                    self.group, core.consumer, core.state.value, core.epoch, core.coordinator
                )
            )
        if core.assigned_epoch is not None:
            self._stable.set()
        if core.state is GroupState.FAILED and core.error is not None:
            self._stop(core.error)

    def _ended(self, place: StreamPartition, error: LiftbridgeError | None) -> None:
        self._rebalancer.ended(place, error)

    def _may_commit(self, place: StreamPartition) -> bool:
        return self._member.is_sure and place not in self._rebalancer.taken

    def _free_from(self, place: StreamPartition) -> float:
        return self._handover.free_from(place)

    def _background(self, work: Callable[[], Awaitable[None]], name: str) -> None:
        """Run something that ends soon; nothing, where this ends anyway."""
        self._passing = [child for child in self._passing if not child.done]
        with suppress(ClientClosed):
            name = f"group:{self.group}:{name}"
            self._passing.append(self._connection.supervisor.spawn(work, name=name))

    def _reading_plan(
        self, place: StreamPartition, start: StartAt, identity: ConsumerIdentity
    ) -> ReadingPlan:
        return ReadingPlan(
            stream=place.stream,
            partition=place.partition,
            start=start,
            stop=None,
            resubscribe_timeout=None,  # the group decides how long
            resume=False,
            from_isr_replica=False,
            reverse=False,
            timeout=self._plan.timeout,
            now=0,
            consumer=identity,
        )

    # Reading

    def __aiter__(self) -> Self:
        """Return itself."""
        return self

    async def __anext__(self) -> Message:
        """Return the next message of any partition, waiting for it if need be.

        Cancelling loses no message: the next call returns it.

        Raises:
            StopAsyncIteration: the member or its client was closed.
            ConcurrentRead: another task is waiting already.
            LiftbridgeError: a partition cannot be read, or this cannot be a member any more.
            Exception: what a handler raised. Each error is raised once.
        """
        merge = self._readings.merge
        ready: deque[Message] = merge.ready
        return ready.popleft() if ready else await self._taken(merge.take_next())

    @overload
    def batches(
        self, max: int = ..., wait: Duration = ..., *, raw: Literal[False] = False
    ) -> Batches[Message]: ...

    @overload
    def batches(
        self, max: int = ..., wait: Duration = ..., *, raw: Literal[True]
    ) -> Batches[RawMessage]: ...

    def batches(
        self,
        max: int = 1000,  # noqa: A002 - says it best where it is called
        wait: Duration = 0.0,
        *,
        raw: bool = False,
    ) -> Batches[Message] | Batches[RawMessage]:
        """Read lists of messages; see `Subscription.batches`.

        A list is finished when the next one is asked for.

        Raises:
            InvalidRequest: an argument makes no sense.
        """
        check_whole_number(max, "the size of a batch", 1, INT64_MAX)
        seconds = timer_seconds(wait, "wait")
        if raw:
            return Batches(self._take_raw, max, seconds)
        return Batches(self._take, max, seconds)

    async def _take(self, most: int, wait: float) -> list[Message]:
        return await self._taken(self._readings.merge.take(most, wait))

    async def _take_raw(self, most: int, wait: float) -> list[RawMessage]:
        return await self._taken(self._readings.merge.take_raw(most, wait))

    async def _taken(self, taking: Awaitable[T]) -> T:
        """Wait for messages; where the end comes instead, raise the error behind it, if any."""
        try:
            return await taking
        except StopAsyncIteration:
            self._raise_error()
            raise

    def _raise_error(self) -> None:
        if self._error is not None and not self._error_seen:
            self._error_seen = True
            raise self._error

    # Positions

    async def commit(self, message: Message | RawMessage | None = None) -> None:
        """Store now how far each partition is finished.

        Positions never step back: where a higher one stands, nothing is written. Cancelling
        abandons the wait; positions may be stored or not.

        Args:
            message: counts as finished, with all before it in its partition. None: what was handed
                out before what is in hand is finished.

        Raises:
            NotGroupMember: the partition of the message is not this member's any more, or it is
                not certain that this is still a member.
            LiftbridgeError: a position could not be stored.
        """
        places: Iterable[tuple[str, int]] | None = None
        if message is not None:
            place = StreamPartition(message.stream, message.partition)
            if not self._readings.finish(place, message.offset):
                text = "the partition is not assigned to this member"
                raise NotGroupMember(text, stream=place.stream, partition=place.partition)
            places = [place]
        await self._keeper.commit(places)

    def pause(self, *partitions: tuple[str, int]) -> None:
        """Hand out nothing of these, or of all that are assigned now, until they are resumed.

        Raises:
            NotGroupMember: one of them is not assigned to this member.
        """
        self._readings.pause(self._chosen(partitions))

    def resume(self, *partitions: tuple[str, int]) -> None:
        """Hand out these, or all, again.

        Raises:
            NotGroupMember: one of them is not assigned to this member.
        """
        self._readings.resume(self._chosen(partitions))

    async def seek(self, stream: str, partition: int, position: int | StartAt) -> None:
        """Read a partition on from elsewhere; works in `on_assigned` too.

        A position below the committed one is read, and stored only from where it has passed that.

        Raises:
            NotGroupMember: the partition is not assigned to this member.
            InvalidRequest: that is no position.
        """
        [place] = self._chosen([(stream, partition)])
        if not isinstance(position, StartAt):
            position = StartAt.offset(position)
        self._rebalancer.seek(place, position)

    async def lag(self, *, timeout: Duration | None = None) -> dict[StreamPartition, int]:
        """Count the offsets between what was handed out of each partition and its end.

        Compaction leaves gaps, which count. Cancelling abandons the questions.

        Raises:
            LiftbridgeError: a leader could not be asked.
        """
        limit = self._plan.timeout if timeout is None else timer_seconds(timeout, "timeout")

        async def behind(place: StreamPartition) -> int:
            state = await self._connection.metadata.partition(*place, limit)
            position = self._readings.position(place)
            return max(state.newest_offset + 1 - (position or 0), 0)

        places = sorted(self.assignment)
        try:
            async with asyncio.timeout(limit):
                counts = await for_each(places, behind)
        except TimeoutError as error:
            if isinstance(error, LiftbridgeError):
                raise
            text = f"the leaders did not answer within {limit:g} s"
            raise RequestTimeout(text) from None
        return dict(zip(places, counts, strict=True))

    def _chosen(self, partitions: Iterable[tuple[str, int]]) -> list[StreamPartition]:
        known = self._readings.places()
        chosen = [StreamPartition(*place) for place in partitions] or known
        for place in chosen:
            if place not in known:
                text = "the partition is not assigned to this member"
                raise NotGroupMember(text, stream=place.stream, partition=place.partition)
        return chosen


def _seen(task: asyncio.Task[None]) -> None:
    if not task.cancelled():
        task.exception()
