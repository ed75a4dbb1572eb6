"""The parts of a member, the tasks that run them, and how they are closed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import nullcontext, suppress
from typing import Final

from liftbridge_aio._core.foreign_cancellation import failure_of
from liftbridge_aio._runtime.stop_signal import stopped_by_signals
from liftbridge_aio._runtime.supervisor import Child, wait_despite_cancellation
from liftbridge_aio._subscribe.core.memory_budget import MemoryBudget
from liftbridge_aio._subscribe.core.plan import ConsumerIdentity, ReadingPlan
from liftbridge_aio._subscribe.cursor_committer import CursorCommitter, LocatingStore
from liftbridge_aio._subscribe.partition_reader import PartitionReader
from liftbridge_aio.errors import (
    ClientClosed,
    ConcurrentRead,
    LiftbridgeError,
    RequestTimeout,
    StreamDeleted,
)
from liftbridge_aio.model import StartAt, StreamPartition
from liftbridge_aio.net.network import Network
from liftbridge_aio.telemetry import GroupChanged

from .core.group_plan import GroupPlan
from .core.group_state import OVER, GroupState
from .fenced_cursors import FencedCursors, group_cursor
from .group_calls import GroupCalls
from .group_readers import GroupReaders
from .handler_runner import HandlerRunner, MessageHandler, OnError
from .member import Member
from .partition_transfer import PartitionTransfer
from .rebalancer import Rebalancer
from .start_positions import StartPositions

_LONGEST_CALL: Final = 3.0
"""Timeout of fetching or storing a position.

A server stores positions sequentially and waits until this deadline for one that went to a leader
which has just failed; the next one goes to the new leader.
"""
_CLOSING_TIME: Final = 0.25
"""The part of the close timeout reserved for tasks to end, in seconds."""


class MemberRuntime:
    """A running member: it joins, reads, commits and leaves.

    Args:
        plan: the arguments of `Client.group`.
        network: the network of the client.
        cursors: stores the positions.
        budget: limits the unread bytes of this process.
    """

    def __init__(
        self, plan: GroupPlan, network: Network, cursors: LocatingStore, budget: MemoryBudget
    ) -> None:
        self.plan = plan
        self.network = network
        self.member = Member(
            GroupCalls(plan.group, plan.streams, network), plan.consumer_id, self._changed
        )
        self.readers = GroupReaders(
            lambda plan: PartitionReader(plan, network, budget),
            self._reading_plan,
            self._reading_ended,
            network.reporter.delivered,
        )
        self.cursors = FencedCursors(cursors, self._may_commit, self._free_from)
        call_timeout = min(plan.timeout, _LONGEST_CALL)
        self.committer = CursorCommitter(
            group_cursor(plan.group),
            self.cursors,
            timeout=call_timeout,
            failed=network.reporter.commit_failed,
        )
        self.start_positions = StartPositions(
            plan.group,
            plan.start,
            plan.on_reset,
            self.cursors,
            cursors,
            network,
            call_timeout,
        )
        self._transfer = PartitionTransfer(
            self.readers,
            self.committer,
            self.cursors,
            self._background,
            network.reporter.commit_failed,
            call_timeout,
        )
        self.rebalancer = Rebalancer(
            plan.group,
            self.member,
            self.readers,
            self.committer,
            self.start_positions,
            self._transfer,
            on_assigned=plan.on_assigned,
            on_revoked=plan.on_revoked,
            on_taken=plan.on_taken,
            commits=plan.commit_interval is not None,
            close_timeout=plan.close_timeout,
            failed=network.reporter.partition_blocked,
        )
        self.runner: HandlerRunner | None = None
        """The current run of a handler; None if there is none."""
        self.closing = False
        self._loop = asyncio.get_running_loop()
        self._children: dict[str, Child] = {}
        self._passing: set[Child] = set()
        self._reported: tuple[object, ...] = ()
        self._stable = asyncio.Event()
        self._error: BaseException | None = None
        self._error_seen = False
        self._closer: Child | None = None
        self._close_error: BaseException | None = None

    # Joining

    async def join(self, deadline: float) -> None:
        """Join and find the start positions of the first assignment; `begin` starts delivery.

        After cancellation, call `close` to undo a partial join.

        Raises:
            ClientClosed: the member or the client was closed meanwhile.
            LiftbridgeError: it could not join.
        """
        plan = self.plan
        self._check_open()  # it may have been closed while it waited for its turn

        def left() -> float:
            return max(deadline - self._loop.time(), 0.0)

        for stream in plan.streams:
            await self.network.metadata.stream(stream, left())
        # Groups need cursors, so fail early if there are none.
        await self.cursors.fetch(group_cursor(plan.group), plan.streams[0], 0, left())
        self.member.begin(0.75 * left())  # leaves time to raise a more precise error
        self._run(self.member.run, "member")
        self._run(self.rebalancer.run, "rebalancer")
        interval = plan.commit_interval
        if interval is not None:
            self._run(lambda: self.committer.run(interval, _raise), "commits")
        await self._stable.wait()
        await self.rebalancer.positions_known.wait()
        self.raise_error()
        self._check_open()

    def _check_open(self) -> None:
        # Of a client that is closed, another task may end before that of the member.
        if self.readers.merge.is_finished or self.member.state in OVER:
            raise ClientClosed("the group, or the client, was closed while the group was joined")

    def begin(self) -> None:
        """Call `on_assigned` and start delivery."""
        self.rebalancer.begin()

    # Handling

    async def run(
        self, handler: MessageHandler, *, concurrency: int, on_error: OnError, stop_on_signals: bool
    ) -> None:
        """Call a handler for each message, and commit finished positions at the end.

        Cancelling cancels the calls of the handler and waits for them, then for the commit.

        Raises:
            ConcurrentRead: another task reads.
            Exception: what the handler or this raised.
        """
        if self.runner is not None:
            raise ConcurrentRead("the group is already read by `run`")
        plan = self.plan
        self.runner = HandlerRunner(
            plan.group,
            self.readers,
            self.rebalancer.put_back,
            self.network.reporter.handler_failed,
            handler,
            plan.interceptors,
            concurrency=concurrency,
            on_error=on_error,
        )
        try:
            with stopped_by_signals(self.runner.stop) if stop_on_signals else nullcontext():
                try:
                    await self.runner.run()
                except BaseException:
                    await self._commit_at_end()
                    raise
                error = await self._commit_at_end()
        finally:
            self.runner = None
        if error is not None:
            raise error
        self.raise_error()

    async def _commit_at_end(self) -> LiftbridgeError | None:
        """Commit finished positions; return the error of a failure, which the hook has received."""
        # A group that has ended commits on its own, or cannot commit.
        if self.plan.commit_interval is None or self.readers.merge.is_finished:
            return None
        failure: LiftbridgeError | None = None

        async def commit() -> None:
            nonlocal failure
            try:
                await self.committer.commit()
            except LiftbridgeError as error:
                failure = error

        if not await wait_despite_cancellation(commit(), self.plan.close_timeout):
            failure = RequestTimeout(
                f"the positions were not committed within {self.plan.close_timeout:g} s"
            )
        return failure

    # Tasks and their errors

    def _run(self, work: Callable[[], Awaitable[None]], name: str) -> None:
        async def run() -> None:
            try:
                await work()
            except BaseException as error:  # noqa: BLE001 - raised to the reader
                try:
                    failure = failure_of(error, f"the task {name} of the group")
                except BaseException:
                    self._stop(None)
                    raise
                self._stop(failure)

        self._children[name] = self._spawn(run, name)

    def _background(self, work: Callable[[], Awaitable[None]], name: str) -> None:
        """Run a short task in the background, unless the member is closing."""
        with suppress(ClientClosed):
            child = self._spawn(work, name)
            self._passing.add(child)
            child.task.add_done_callback(lambda _: self._passing.discard(child))

    def _spawn(self, work: Callable[[], Awaitable[None]], name: str) -> Child:
        return self.network.supervisor.spawn(work, name=f"group:{self.plan.group}:{name}")

    def _stop(self, error: BaseException | None) -> None:
        """Close because a part has ended; the reader receives the error."""
        if self._error is None:
            self._error = error
        if not self.closing:
            self.readers.stop(self.readers.partitions())
        self.readers.merge.finish()
        self._stable.set()
        self.rebalancer.positions_known.set()

    def raise_error(self) -> None:
        """Raise the error that ended this member, if any; it is raised once."""
        error = self._unraised_error()
        if error is not None:
            raise error

    def _unraised_error(self) -> BaseException | None:
        told, self._error_seen = self._error_seen, self._error is not None
        return None if told else self._error

    # Closing

    async def close(self) -> None:
        """Commit, leave and close within `close_timeout`; idempotent, callable from any task.

        If called by a handler, it does not wait, because closing waits for the handler. Cancelling
        does not stop the closing.

        Raises:
            Exception: an error not raised before, for example of the last commit.
        """
        if not self.closing:
            self.closing = True
            self._begin_to_close()
        if self.rebalancer.is_handlers_task or (self.runner and self.runner.is_handlers_task):
            return
        if self._closer is None:
            await self._close()  # the client was closed: no task is left to wait for
        else:
            limit = self.plan.close_timeout + 1.0
            await wait_despite_cancellation(self._closer.wait(), limit)
        if self._close_error is not None:
            raise self._close_error  # raised to every caller of `close`

    def _begin_to_close(self) -> None:
        self.rebalancer.end()
        self.readers.merge.finish()
        with suppress(ClientClosed):
            self._closer = self._spawn(self._close, "leave")

    async def _close(self) -> None:
        limit = self.plan.close_timeout
        deadline = self._loop.time() + limit - min(_CLOSING_TIME, limit / 4)
        try:
            if self._children:
                # Half of the timeout is for handlers, the last quarter for leaving the group.
                async with asyncio.timeout(limit * 0.75):
                    await self._children["rebalancer"].wait()
                    await self._commit_rest()
        except LiftbridgeError as error:
            self._close_error = error
        except TimeoutError:
            text = (
                f"the group {self.plan.group!r} was left after {limit * 0.75:g} s, before all was"
                " stored: a handler or on_revoked took too long, or the servers did not answer;"
                " what was not stored is delivered again"
            )
            self._close_error = RequestTimeout(text)
        except asyncio.CancelledError:
            self._close_error = ClientClosed("the client was closed before the group was left")
            raise
        finally:
            self.readers.close()
            self.readers.merge.finish()
            self._stable.set()
            self.rebalancer.positions_known.set()
            for name, child in self._children.items():
                if name != "member":
                    child.cancel()
            for child in tuple(self._passing):
                child.cancel()
            await self._leave(deadline)
        self._close_error = self._unraised_error() or self._close_error

    async def _commit_rest(self) -> None:
        """Commit the remaining positions if the rebalancer ended with an error."""
        try:
            if self.plan.commit_interval is not None:
                await self.committer.commit()
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
            async with asyncio.timeout(left + _CLOSING_TIME / 2):
                await member.wait()
        except TimeoutError:
            member.cancel()

    # Events of the member and its readers

    def _changed(self) -> None:
        core = self.member.core
        if not self.closing:
            self.rebalancer.follow()
        now = (core.consumer, core.state.value, core.epoch, core.coordinator)
        if now != self._reported:
            self._reported = now
            self.network.reporter.group_changed(GroupChanged(self.plan.group, *now))
        if core.assigned_epoch is not None:
            self._stable.set()
        if core.state is GroupState.FAILED and core.error is not None:
            self._stop(core.error)
        self._check_streams()

    def _check_streams(self) -> None:
        """Close if all streams were deleted, because deleted streams leave the group."""
        deleted = self.readers.deleted.issuperset(self.plan.streams)
        if (deleted or not self.member.core.has_streams) and not self.closing:
            self._stop(StreamDeleted("all streams of the group were deleted"))

    def _reading_ended(self, place: StreamPartition, error: LiftbridgeError | None) -> None:
        self.rebalancer.ended(place, error)
        self._check_streams()

    def _may_commit(self, place: StreamPartition) -> bool:
        return self.member.is_confirmed and place not in self.rebalancer.taken

    def _free_from(self, place: StreamPartition) -> float:
        return self._transfer.free_from(place)

    def _reading_plan(
        self, place: StreamPartition, start: StartAt, identity: ConsumerIdentity
    ) -> ReadingPlan:
        log = self.rebalancer.logs.get(place)
        return ReadingPlan(
            stream=place.stream,
            partition=place.partition,
            start=start,
            stop=None,
            resubscribe_timeout=None,  # the group decides when to give up
            unpause=self.plan.unpause or place.stream in self.plan.resumed,
            from_isr_replica=False,
            reverse=False,
            timeout=self.plan.timeout,
            now=0,
            consumer=identity,
            created=0 if log is None else log.created,
            make_visibility=self.plan.make_visibility,
        )


def _raise(_: StreamPartition, error: LiftbridgeError) -> None:
    raise error
