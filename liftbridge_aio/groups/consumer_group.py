"""The handle of one member of a consumer group: an async context manager and an async iterator."""

from __future__ import annotations

import asyncio
import warnings
from collections import deque
from collections.abc import Awaitable, Iterable, Mapping
from types import MappingProxyType, TracebackType
from typing import Literal, Self, TypeVar, overload

from liftbridge_aio.arguments import INT64_MAX, check_type, check_whole_number
from liftbridge_aio.batches import Batches
from liftbridge_aio.cursor_keeper import CursorStore
from liftbridge_aio.errors import LiftbridgeError, NotGroupMember, RequestTimeout, UsageError
from liftbridge_aio.for_each import for_each
from liftbridge_aio.model import Message, StartAt
from liftbridge_aio.net.connection import Connection
from liftbridge_aio.options import Duration, timer_seconds
from liftbridge_aio.raw_message import RawMessage
from liftbridge_aio.read_budget import ReadBudget

from .assignment import Assignment, StreamPartition
from .group_plan import GroupPlan
from .group_state import GroupState
from .participation import Participation

T = TypeVar("T")


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
        self._work = Participation(plan, connection, cursors, budget)
        self._core = self._work.member.core
        self._readings = self._work.readings
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
        return self._core.consumer

    @property
    def state(self) -> GroupState:
        """How the member is."""
        return self._core.state

    @property
    def assignment(self) -> Assignment:
        """The partitions that are this member's: `on_assigned` was told, `on_revoked` was not."""
        return self._work.rebalancer.ownership.owned

    @property
    def epoch(self) -> int | None:
        """The epoch of the group in which the assignment was heard last; None before that."""
        return self._core.assigned_epoch

    @property
    def coordinator(self) -> str:
        """Id of the broker that coordinates the group; empty before it is known."""
        return self._core.coordinator

    @property
    def positions(self) -> Mapping[StreamPartition, int | None]:
        """The offset from which each partition is handed out next; None where not known yet.

        Those of which a handler is being told are among them, here and in what stands below.
        """
        return MappingProxyType(
            {place: self._readings.position(place) for place in self._readings.places()}
        )

    @property
    def committed(self) -> Mapping[StreamPartition, int]:
        """The last offset of each partition that this member found or made committed."""
        stored = self._work.keeper.stored
        return MappingProxyType({StreamPartition(*place): at for place, at in stored.items()})

    @property
    def paused(self) -> Assignment:
        """Partitions of which nothing is handed out until they are resumed."""
        return frozenset(self._readings.paused)

    # Life

    async def __aenter__(self) -> Self:
        """Join the group, wait for the first assignment, and look up where it begins.

        So `pause` and `seek` work at once. `on_assigned` is told after this; `assignment` has the
        partitions when it was, or at once where there is none to be told. Cancelling leaves the
        group again.

        Raises:
            StreamNotFound: a stream does not exist.
            CursorsUnavailable: the server keeps no cursors.
            AlreadyMember: somebody with this consumer id is in the group.
            NoCommittedPosition: the group has committed nothing, and start=None.
            RequestTimeout: not in time.
            ClientClosed: this, or the client, was closed meanwhile.
            LiftbridgeError: it could not join.
        """
        if self.state is not GroupState.NEW or self._work.closing:
            text = "a member joins once; make a new one"
            raise UsageError(text)
        deadline = asyncio.get_running_loop().time() + self._plan.timeout
        try:
            async with asyncio.timeout_at(deadline) as limit:
                await self._work.join(deadline)
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
        self._work.begin()
        return self

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
        by the client's close_timeout; cancelling does not keep it from ending. In a handler it
        returns at once, and the group ends when the handler has.

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
        """Return the next message of any partition, waiting for it if need be.

        Cancelling loses no message: the next call returns it.

        Raises:
            StopAsyncIteration: the member or its client was closed.
            ConcurrentRead: another task is waiting already.
            StreamReset: the log of a partition is not the one that the group has read; it is read
                on once `seek` has said from where, the others whenever the next message is asked
                for.
            StreamDeleted: all streams were; of several, the others are read on.
            UsageError: it was not entered.
            LiftbridgeError: a partition cannot be read, or this cannot be a member any more.
            Exception: what a handler raised. Each error is raised once.
        """
        merge = self._readings.merge
        ready: deque[Message] = merge.ready
        if ready:
            return ready.popleft()
        self._check_joined()
        return await self._taken(merge.take_next())

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
        self._check_joined()
        return await self._taken(self._readings.merge.take(most, wait))

    async def _take_raw(self, most: int, wait: float) -> list[RawMessage]:
        self._check_joined()
        return await self._taken(self._readings.merge.take_raw(most, wait))

    async def _taken(self, taking: Awaitable[T]) -> T:
        """Wait for messages; where the end comes instead, raise the error behind it, if any."""
        try:
            return await taking
        except StopAsyncIteration:
            self._work.raise_error()
            raise

    def _check_joined(self) -> None:
        if self.state is GroupState.NEW and not self._work.closing:
            text = "a group is read inside `async with`: entering it joins the group"
            raise UsageError(text)

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
            check_type(message, (Message, RawMessage), "a message that was read is committed")
            place = StreamPartition(message.stream, message.partition)
            is_ours = self._readings.finish(place, message.offset)
            if not is_ours or place in self._work.rebalancer.taken:
                text = "the partition is not assigned to this member"
                raise NotGroupMember(text, stream=place.stream, partition=place.partition)
            places = [place]
        await self._work.keeper.commit(places)

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
        After a `StreamReset` it is stored from there, lower as it may be (but v1.9.0 servers
        recover the highest one after a restart). Cancelling may leave the partition where it was.

        Raises:
            NotGroupMember: the partition is not assigned to this member.
            InvalidRequest: that is no position.
            LiftbridgeError: after a `StreamReset`, what is stored could not be looked up.
        """
        [place] = self._chosen([(stream, partition)])
        if not isinstance(position, StartAt):
            position = StartAt.offset(position)
        if place in self._work.rebalancer.resets:
            self._work.cursors.may_replace(place, await self._work.keeper.fetch(*place))
            self._chosen([place])  # still
        self._work.rebalancer.seek(place, position)

    async def lag(self, *, timeout: Duration | None = None) -> dict[StreamPartition, int]:
        """Ask the leaders how far behind the end of its log each partition is.

        Counted are offsets, from `positions` to the newest committed message, both included; see
        `Subscription.lag`. Cancelling abandons the questions.

        Raises:
            LiftbridgeError: a leader could not be asked.
        """
        limit = self._plan.timeout if timeout is None else timer_seconds(timeout, "timeout")

        async def behind(place: StreamPartition) -> int:
            state = await self._connection.metadata.partition(*place, limit)
            position = self._readings.position(place)
            return max(state.high_watermark + 1 - (position or 0), 0)

        places = sorted(self._readings.places())
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
        for place in partitions:
            check_type(place, tuple, "a partition of a group is a StreamPartition, as (name, 0)")
        chosen = [StreamPartition(*place) for place in partitions] or known
        for place in chosen:
            if place not in known:
                text = "the partition is not assigned to this member"
                raise NotGroupMember(text, stream=place.stream, partition=place.partition)
        return chosen
