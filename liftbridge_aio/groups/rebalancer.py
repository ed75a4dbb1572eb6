"""Acquires and releases partitions, one step at a time, as `Ownership` requests."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from copy import copy
from functools import partial
from typing import Final

import anyio

from liftbridge_aio._core.foreign_cancellation import foreign_cancellation_fails
from liftbridge_aio._core.log_position import LogPosition
from liftbridge_aio._runtime.bounded_gather import bounded_gather
from liftbridge_aio._subscribe.core.plan import ConsumerIdentity
from liftbridge_aio._subscribe.cursor_committer import CursorCommitter
from liftbridge_aio._subscribe.partition_reader import PartitionReader
from liftbridge_aio._subscribe.receive_buffer import Doorbell
from liftbridge_aio.errors import (
    InvalidRequest,
    LiftbridgeError,
    NoCommittedPosition,
    PartitionPaused,
    PartitionTaken,
    PermissionDenied,
    RequestTimeout,
    StreamDeleted,
    StreamReset,
)
from liftbridge_aio.model import Message, StartAt, StreamPartition
from liftbridge_aio.telemetry import PartitionBlocked

from .core.group_plan import Assignment, RebalanceCallback
from .core.ownership import Adopt, Idle, Open, Ownership, Revoke
from .fenced_cursors import group_cursor
from .group_readers import GroupReaders
from .member import Member
from .partition_transfer import PartitionTransfer
from .start_positions import Found, StartPositions

logger = logging.getLogger("liftbridge_aio.groups")

_LOOK: Final = 2.0
"""Timeout of finding a start position, so that slow partitions do not delay the others.

It doubles with each failure: it takes `not_found_timeout` to learn that a stream was deleted."""
_LONGEST_LOOK: Final = 8 * _LOOK
_RESETS: Final = 3
"""The lookups that may find the log shorter: a new leader may not know its end yet."""
_BLOCKED_AFTER: Final = 5
"""Consecutive failures, about two seconds, after which a partition counts as blocked.

A paused one counts as blocked immediately.
"""
_LASTING: Final = (InvalidRequest, NoCommittedPosition, PermissionDenied)
"""Errors of finding a start position that a retry does not resolve."""


class Rebalancer:
    """The task that keeps the read partitions in line with the assigned ones.

    Args:
        group: the id of the group.
        member: the member that reads.
        readers: the readers of the member.
        committer: stores the positions.
        start_positions: finds the start positions.
        transfer: transfers partitions from and to other members.
        on_assigned: called with partitions before the first delivery from them.
        on_revoked: called with partitions before they are released.
        on_taken: called with a partition that another member has begun to read.
        commits: True to commit automatically.
        close_timeout: seconds that handlers of revoked partitions may take to end.
        failed: called each time a partition cannot be read.
    """

    def __init__(
        self,
        group: str,
        member: Member,
        readers: GroupReaders,
        committer: CursorCommitter,
        start_positions: StartPositions,
        transfer: PartitionTransfer,
        *,
        on_assigned: RebalanceCallback | None,
        on_revoked: RebalanceCallback | None,
        on_taken: Callable[[StreamPartition], None] | None,
        commits: bool,
        close_timeout: float,
        failed: Callable[[PartitionBlocked], None],
    ) -> None:
        self.ownership = Ownership()
        self.identity = ConsumerIdentity(group, "", 0)
        self.taken: set[StreamPartition] = set()
        """Partitions that another member has started to read.

        Except for an immediate last one, none of their positions is stored until the group confirms
        that they are still assigned to this member.
        """
        self.resets: dict[StreamPartition, StreamReset] = {}
        """Partitions whose position belongs to another log, until the user seeks."""
        self.logs: dict[StreamPartition, LogPosition] = {}
        """Where the positions of the log are stored that each partition of this member has."""
        self.positions_known = asyncio.Event()
        """Set once the start positions of the first assignment are known."""
        self._group = group
        self._member = member
        self._readers = readers
        self._committer = committer
        self._start_positions = start_positions
        self._transfer = transfer
        self._on_assigned = on_assigned
        self._on_revoked = on_revoked
        self._on_taken = on_taken
        self._commits = commits
        self._close_timeout = close_timeout
        self._failed = failed
        self._handlers_wait: anyio.CancelScope | None = None
        self._blocked: dict[StreamPartition, LiftbridgeError] = {}
        self._warned: set[StreamPartition] = set()
        self._loop = asyncio.get_running_loop()
        self._bell = Doorbell()
        self._seen: tuple[str, int] | None = None
        self._begun = False
        self._ending = False
        self._task: asyncio.Task[object] | None = None

    @property
    def is_handlers_task(self) -> bool:
        """True if called from a callback of the user."""
        return self._task is not None and asyncio.current_task() is self._task

    @property
    def blocked(self) -> dict[StreamPartition, LiftbridgeError]:
        """The partitions of this member that cannot currently be read, with the error."""
        now = self._loop.time()
        blocked: dict[StreamPartition, LiftbridgeError] = {
            partition: error
            for partition, error in self._blocked.items()
            if not (
                self.ownership.is_readable(partition, now) and self._readers.is_connected(partition)
            )
        }
        every = blocked | self.resets
        return {
            partition: every[partition]
            for partition in sorted(every)
            if partition in self.ownership.wanted
        }

    # Events

    def begin(self) -> None:
        """Start calling callbacks, which may need the group that the user has now."""
        self._begun = True
        self._bell.ring()

    def follow(self) -> None:
        """Apply the state of the member; stop delivery from partitions it no longer owns."""
        core = self._member.core
        if core.assigned_epoch is None:
            if self._seen is not None:
                self._seen = None
                self.ownership.lose()
                self._readers.lose()
                for partition in self._readers.partitions():
                    self._committer.forget(*partition)
        elif self._seen != (core.consumer, core.assigned_epoch):
            self._seen = (core.consumer, core.assigned_epoch)
            if self.identity.consumer != core.consumer:
                self.identity = ConsumerIdentity(self._group, core.consumer, core.assigned_epoch)
            self._readers.stop(self.ownership.assign(core.assignment))
            # Set last: no subscription of a released partition may be resumed with the new
            # identity.
            self.identity.epoch = core.assigned_epoch
        self._bell.ring()

    def ended(self, partition: StreamPartition, error: LiftbridgeError | None) -> None:
        """Handle the end of a reader."""
        taken = isinstance(error, PartitionTaken)
        attempts = self.ownership.ended(
            partition, self._loop.time(), taken=taken, again=not isinstance(error, StreamReset)
        )
        if error is not None and attempts:
            self._note_failure(partition, attempts, error)
        if isinstance(error, StreamReset):
            self.resets[partition] = error
        if taken:
            self._give(partition)
        if isinstance(error, PartitionTaken | StreamDeleted):
            self._member.fetch_now()  # the assignment may have changed
        self._bell.ring()

    def _note_failure(
        self, partition: StreamPartition, attempts: int, error: LiftbridgeError
    ) -> None:
        self._failed(PartitionBlocked(self._group, *partition, attempts, error))
        if attempts < _BLOCKED_AFTER and not isinstance(error, PartitionPaused):
            return
        self._blocked[partition] = error.at(*partition)
        if partition not in self._warned:
            self._warned.add(partition)
            logger.warning(
                "the group %r cannot read a partition that is assigned to this member: %s",
                self._group,
                str(error),  # an error kept in a record of the log would keep the client alive
            )

    def _give(self, partition: StreamPartition) -> None:
        """Store a last position for the member that has taken a partition."""
        stored = self._committer.stored_of(*partition)
        cursor_id = self._committer.cursor_of(*partition)
        first = partition not in self.taken
        self.taken.add(partition)
        self._committer.forget(*partition)
        if first and self._on_taken is not None:
            self._on_taken(partition)
        if first and self._commits and self._member.is_confirmed:
            self._transfer.give(partition, -1 if stored is None else stored, cursor_id)

    def seek(
        self, partition: StreamPartition, start: StartAt, log: LogPosition | None = None
    ) -> None:
        """Move a partition to another position; after a `StreamReset`, of the log that is given."""
        if self.resets.pop(partition, None) is not None:
            if log is not None:
                self.logs[partition] = log
            self._readers.start_over(partition)
            self._keep(partition, None)
        self._readers.seek(partition, start)
        self._transfer.start_chosen(partition)
        self.ownership.reopen(partition)
        self._bell.ring()

    def put_back(self, reader: PartitionReader, message: Message) -> None:
        """Return the last message of a turn to its reader, so that it is delivered again."""
        if self._readers.put_back(reader, message):
            self.ownership.reopen(StreamPartition(message.stream, message.partition))
            self._bell.ring()

    def end(self) -> None:
        """Make `run` commit, release all partitions and return."""
        self._ending = True
        if self._handlers_wait is not None:
            limit = self._loop.time() + self._close_timeout / 2
            self._handlers_wait.deadline = min(self._handlers_wait.deadline, limit)
        self._readers.stop(self.ownership.assign(frozenset()))
        self._bell.ring()

    # Steps

    async def run(self) -> None:
        """Follow the assignments until `end`. Cancelling leaves partitions as they are.

        Raises:
            Exception: what a handler of the user raised.
            LiftbridgeError: a start position cannot be found.
        """
        self._task = asyncio.current_task()
        while True:
            step = self.ownership.next_step(self._loop.time(), self._member.core.confirmed_at)
            match step:
                case Revoke():
                    await self._revoke(step)
                case Adopt():
                    await self._adopt(step)
                case Open():
                    self._open(step)
                case Idle():
                    if self._seen is not None:
                        self.positions_known.set()
                    if self._ending:
                        return
                    await self._idle(step.until)

    async def _revoke(self, step: Revoke) -> None:
        await self._wait_for_handlers(step.partitions)
        if self._on_revoked is not None and self._begun:
            await _call_back(self._on_revoked, step.partitions)
        for partition in step.partitions:
            if not step.commit or not self._commits:
                self._committer.forget(*partition)
        if step.commit and self._commits:
            await self._commit_last(step.partitions)
        self._readers.give_up(step.partitions)
        for partition in step.partitions:
            self._transfer.forget(partition)
            self.resets.pop(partition, None)
            self.logs.pop(partition, None)
            self._blocked.pop(partition, None)
        self.taken -= step.partitions
        self.ownership.revoked(step)

    async def _wait_for_handlers(self, partitions: Assignment) -> None:
        """Wait until no message of these partitions is being handled, at most `close_timeout`.

        If the group is closing, for half of it, which leaves time to commit. A handler that
        takes longer continues; its message is not committed and is handled again.
        """
        limit = self._close_timeout / 2 if self._ending else self._close_timeout
        with anyio.move_on_after(limit) as self._handlers_wait:
            await self._readers.wait_for_turns(partitions)

    async def _commit_last(self, partitions: Assignment) -> None:
        try:
            await self._committer.commit(partitions)
        except LiftbridgeError as error:
            if self._ending:
                raise
            logger.debug("a last commit failed: %s", error)  # `failed` was called
        finally:
            for partition in partitions:
                self._committer.forget(*partition)

    async def _adopt(self, step: Adopt) -> None:
        look = min(_LOOK * 2 ** self.ownership.failures(step.partitions), _LONGEST_LOOK)
        found, errors = await self._find(step.partitions, look)
        told = self.ownership.resolved(found)
        for partition in told:
            start, stored, self.logs[partition] = found[partition]
            self._readers.adopt(partition, start)
            self._keep(partition, stored)
            if self.identity.epoch > 0:  # else this is the first member of a new group
                self._transfer.adopt(partition)
        missing = step.partitions - found.keys()
        late = RequestTimeout(f"the position was not found within {look:g} s")
        for partition, attempts in self.ownership.unresolved(missing, self._loop.time()).items():
            error = errors.get(partition, late)
            if isinstance(error, StreamReset) and attempts >= _RESETS:
                self.resets[partition] = error
            self._note_failure(partition, attempts, error)
        self.positions_known.set()
        if told and self._on_assigned is not None:
            while not self._begun and not self._ending:
                await self._bell.wait()
            if self._begun:
                await _call_back(self._on_assigned, told)
        self.ownership.announced(told)

    async def _find(
        self, partitions: Assignment, seconds: float
    ) -> tuple[dict[StreamPartition, Found], dict[StreamPartition, LiftbridgeError]]:
        found: dict[StreamPartition, Found] = {}
        errors: dict[StreamPartition, LiftbridgeError] = {}

        async def find(partition: StreamPartition) -> None:
            known = self.resets.pop(partition, None)
            try:
                found[partition] = await self._start_positions.find(partition)
            except StreamReset as error:
                if known is None or error.offset is None:
                    errors[partition] = error
                else:
                    # Raised to the user when the partition is opened, unless a callback seeks.
                    self.resets[partition] = error
                    start = StartAt.offset(error.offset + 1)
                    log = LogPosition(group_cursor(self._group), None)
                    found[partition] = Found(start, error.offset, log)
            except LiftbridgeError as error:
                errors[partition] = error

        async with self._start_positions.turns:
            with anyio.move_on_after(seconds):
                try:
                    # Once, not in each `find`: an answer lists all partitions of a stream.
                    await self._start_positions.renew({each.stream for each in partitions})
                except LiftbridgeError as failure:
                    errors.update((each, copy(failure)) for each in partitions)
                else:
                    await bounded_gather(partitions, find)
        for error in errors.values():
            if isinstance(error, _LASTING):
                raise error
        return found, errors

    def _open(self, step: Open) -> None:
        for partition in sorted(step.partitions):
            if partition in self.taken:
                self.taken.discard(partition)
                self._keep(partition, None)
            reset = self.resets.get(partition)
            fresh = self._transfer.is_fresh(partition) and reset is None
            self.ownership.opened(partition, self._loop.time())
            reader = self._readers.open(partition, self.identity, settled=not fresh, broken=reset)
            if fresh:
                self._transfer.settle(partition, reader)

    def _keep(self, partition: StreamPartition, stored: int | None) -> None:
        finished = partial(self._readers.finished, partition)
        self._committer.keep(*partition, finished, stored, self.logs.get(partition))

    async def _idle(self, until: float) -> None:
        wait = until - self._loop.time()
        try:
            async with asyncio.timeout(wait if wait < 10**6 else None):
                await self._bell.wait()
        except TimeoutError:
            pass


async def _call_back(callback: RebalanceCallback, partitions: Assignment) -> None:
    """Call a callback of the user, and await it if it is a coroutine function."""
    with foreign_cancellation_fails("on_assigned or on_revoked"):
        answer = callback(partitions)
        if isinstance(answer, Awaitable):
            await answer
