"""What stands behind the handle of a member: its parts, the tasks that run them, and their end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from liftbridge_aio.cursor_keeper import CursorKeeper, CursorStore, Place
from liftbridge_aio.errors import ClientClosed, LiftbridgeError, RequestTimeout, StreamDeleted
from liftbridge_aio.model import StartAt
from liftbridge_aio.net.connection import Connection
from liftbridge_aio.net.supervisor import Child, wait_despite_cancellation
from liftbridge_aio.read_budget import ReadBudget
from liftbridge_aio.reading import Reading
from liftbridge_aio.reading_plan import ConsumerIdentity, ReadingPlan
from liftbridge_aio.telemetry import GroupChanged

from .assignment import StreamPartition
from .calls import GroupCalls
from .group_plan import GroupPlan
from .group_reading import GroupReading
from .group_state import OVER, GroupState
from .guarded_cursors import GuardedCursors, group_cursor
from .handover import Handover
from .member import Member
from .rebalancer import Rebalancer
from .starts import Starts

_LONGEST_CALL: Final = 3.0
"""Seconds to look up or to store a position. A server stores one after the other, and waits until
this deadline for one that went to a leader which has just died; the next goes to the new one."""
_LAST_WORD: Final = 0.25
"""Seconds of the time to close that are kept for tasks to end."""


class Participation:
    """One member at work: it joins, reads, commits and leaves.

    Args:
        plan: what was asked for.
        connection: the client's.
        cursors: where positions are kept.
        budget: what may lie unread in this process.
    """

    def __init__(
        self, plan: GroupPlan, connection: Connection, cursors: CursorStore, budget: ReadBudget
    ) -> None:
        self.plan = plan
        self.connection = connection
        self.member = Member(
            GroupCalls(plan.group, plan.streams, connection), plan.consumer_id, self._changed
        )
        self.readings = GroupReading(
            lambda plan: Reading(plan, connection, budget),
            self._reading_plan,
            self._reading_ended,
            connection.reporter.delivered,
        )
        self.cursors = GuardedCursors(cursors, self._may_commit, self._free_from)
        call_timeout = min(plan.timeout, _LONGEST_CALL)
        self.keeper = CursorKeeper(
            group_cursor(plan.group),
            self.cursors,
            timeout=call_timeout,
            failed=connection.reporter.commit_failed,
        )
        self._handover = Handover(
            self.readings,
            self.keeper,
            self.cursors,
            self._background,
            connection.reporter.commit_failed,
            call_timeout,
        )
        self.rebalancer = Rebalancer(
            plan.group,
            self.member,
            self.readings,
            self.keeper,
            Starts(plan.group, plan.start, self.cursors, connection.metadata, call_timeout),
            self._handover,
            on_assigned=plan.on_assigned,
            on_revoked=plan.on_revoked,
            commits=plan.commit_interval is not None,
            blocked=connection.reporter.partition_blocked,
        )
        self.closing = False
        self._loop = asyncio.get_running_loop()
        self._children: dict[str, Child] = {}
        self._passing: list[Child] = []
        self._told: tuple[object, ...] = ()
        self._stable = asyncio.Event()
        self._error: BaseException | None = None
        self._error_seen = False
        self._closer: Child | None = None
        self._close_error: BaseException | None = None

    # Joining

    async def join(self, deadline: float) -> None:
        """Join, and look up where the first assignment begins; `begin` hands out.

        Cancelling leaves it in the middle: `close` ends what was begun.

        Raises:
            ClientClosed: it, or the client, was closed meanwhile.
            LiftbridgeError: it could not join.
        """
        plan = self.plan
        for stream in plan.streams:
            await self.connection.metadata.stream(stream)
        # Without cursors nothing works, so that is better said at once.
        await self.cursors.fetch(group_cursor(plan.group), plan.streams[0], 0, plan.timeout)
        left = max(deadline - self._loop.time(), 0.0)
        self.member.begin(0.75 * left)  # so that there is time to say why not
        self._run(self.member.run, "member")
        self._run(self.rebalancer.run, "rebalancer")
        interval = plan.commit_interval
        if interval is not None:
            self._run(lambda: self.keeper.run(interval, _raise), "commits")
        await self._stable.wait()
        await self.rebalancer.looked.wait()
        self.raise_error()
        if self.closing or self.member.state in OVER:
            raise ClientClosed("the group, or the client, was closed while the group was joined")

    def begin(self) -> None:
        """Tell handlers, and hand out."""
        self.rebalancer.begin()

    # Tasks, and what they raise

    def _run(self, work: Callable[[], Awaitable[None]], name: str) -> None:
        async def run() -> None:
            try:
                await work()
            except asyncio.CancelledError:
                self._stop(None)
                raise
            except Exception as error:  # noqa: BLE001 - raised to the reader
                self._stop(error)

        self._children[name] = self._spawn(run, name)

    def _background(self, work: Callable[[], Awaitable[None]], name: str) -> None:
        """Run something that ends soon; nothing, where this ends anyway."""
        self._passing = [child for child in self._passing if not child.done]
        with suppress(ClientClosed):
            self._passing.append(self._spawn(work, name))

    def _spawn(self, work: Callable[[], Awaitable[None]], name: str) -> Child:
        return self.connection.supervisor.spawn(work, name=f"group:{self.plan.group}:{name}")

    def _stop(self, error: BaseException | None) -> None:
        """End, because a part of this has ended; the reader gets the error."""
        if self._error is None:
            self._error = error
        if not self.closing:
            self.readings.stop(self.readings.places())
        self.readings.merge.finish()
        self._stable.set()
        self.rebalancer.looked.set()

    def raise_error(self) -> None:
        """Raise why this has ended, if it did not just end in order; once."""
        error = self._untold_error()
        if error is not None:
            raise error

    def _untold_error(self) -> BaseException | None:
        told, self._error_seen = self._error_seen, self._error is not None
        return None if told else self._error

    # Closing

    async def close(self) -> None:
        """Commit, leave and end, whoever asks and how often; bounded by the plan's close_timeout.

        A handler that asks does not wait: the end waits for it. Cancelling does not keep this from
        ending.

        Raises:
            Exception: what went wrong and nobody was told of; the last commit for one.
        """
        if not self.closing:
            self.closing = True
            self._begin_to_close()
        if self.rebalancer.is_handlers_task:
            return
        if self._closer is None:
            await (
                self._close()
            )  # the client was closed: nothing runs that would have to be waited for
        else:
            limit = self.plan.close_timeout + 1.0
            await wait_despite_cancellation(self._closer.wait(), limit)
        if self._close_error is not None:
            raise self._close_error  # to each who closes it

    def _begin_to_close(self) -> None:
        self.rebalancer.end()
        self.readings.merge.finish()
        with suppress(ClientClosed):
            self._closer = self._spawn(self._close, "leave")

    async def _close(self) -> None:
        limit = self.plan.close_timeout
        deadline = self._loop.time() + limit - min(_LAST_WORD, limit / 4)
        try:
            if self._children:
                # Half of the time, so that there is some left to leave.
                async with asyncio.timeout(limit / 2):
                    await self._children["rebalancer"].wait()
                    await self._commit_rest()
        except LiftbridgeError as error:
            self._close_error = error
        except TimeoutError:
            text = "on_revoked and the last commit took longer than they may"
            self._close_error = RequestTimeout(text)
        except asyncio.CancelledError:
            self._close_error = ClientClosed("the client was closed before the group was left")
            raise
        finally:
            self.readings.close()
            self.readings.merge.finish()
            self._stable.set()
            self.rebalancer.looked.set()
            for name, child in self._children.items():
                if name != "member":
                    child.cancel()
            for child in self._passing:
                child.cancel()
            await self._leave(deadline)
        self._close_error = self._untold_error() or self._close_error

    async def _commit_rest(self) -> None:
        """Commit what the rebalancer has not, where it ended with an error."""
        try:
            if self.plan.commit_interval is not None:
                await self.keeper.commit()
        except LiftbridgeError:
            if self._error is None:
                raise

    async def _leave(self, deadline: float) -> None:
        member = self._children.get("member")
        if member is None:
            return
        left = max(deadline - self._loop.time(), min(0.5, self.plan.close_timeout))
        self.member.leave(left)
        try:
            async with asyncio.timeout(left + _LAST_WORD / 2):
                await member.wait()
        except TimeoutError:
            member.cancel()

    # What the member and its readings tell

    def _changed(self) -> None:
        core = self.member.core
        if not self.closing:
            self.rebalancer.follow()
        now = (core.consumer, core.state.value, core.epoch, core.coordinator)
        if now != self._told:
            self._told = now
            self.connection.reporter.group_changed(GroupChanged(self.plan.group, *now))
        if core.assigned_epoch is not None:
            self._stable.set()
        if core.state is GroupState.FAILED and core.error is not None:
            self._stop(core.error)
        self._check_streams()

    def _check_streams(self) -> None:
        """End where nothing is left that could ever be read, as deleted streams leave groups."""
        deleted = self.readings.deleted.issuperset(self.plan.streams)
        if (deleted or not self.member.core.has_streams) and not self.closing:
            self._stop(StreamDeleted("all streams of the group were deleted"))

    def _reading_ended(self, place: StreamPartition, error: LiftbridgeError | None) -> None:
        self.rebalancer.ended(place, error)
        self._check_streams()

    def _may_commit(self, place: StreamPartition) -> bool:
        return self.member.is_sure and place not in self.rebalancer.taken

    def _free_from(self, place: StreamPartition) -> float:
        return self._handover.free_from(place)

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
            timeout=self.plan.timeout,
            now=0,
            consumer=identity,
        )


def _raise(_: Place, error: LiftbridgeError) -> None:
    raise error
