"""Takes and gives up partitions, one step after the other, as `Ownership` asks for."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, TypeAlias

import anyio

from liftbridge_aio._core.bounded_gather import bounded_gather
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
from .group_readers import GroupReaders
from .member import Member
from .partition_transfer import PartitionTransfer
from .start_positions import StartPositions

logger = logging.getLogger("liftbridge_aio.groups")

_Start: TypeAlias = tuple[StartAt, int | None]
_LOOK: Final = 2.0
"""Seconds to find where to begin; partitions that take longer do not hold up the others."""
_RESETS: Final = 3
"""How often a log may end before the position: a new leader may just not know its end yet."""
_BLOCKED_AFTER: Final = 5
"""Tries in a row that must fail before a partition counts as blocked, some two seconds; one that is
paused does so at once."""
_LASTING: Final = (InvalidRequest, NoCommittedPosition, PermissionDenied)
"""Why a start cannot be found, however often one looks."""


class Rebalancer:
    """Brings what is read into line with what is assigned.

    Args:
        group: id of the group.
        member: the member that reads.
        readers: what it reads.
        committer: stores how far.
        starts: where to begin.
        transfer: passes partitions on to other members, and takes them over.
        on_assigned: called with partitions before anything of them is handed out.
        on_revoked: called with partitions before they are given up.
        commits: commit without being asked.
        close_timeout: seconds that handlers of revoked partitions may take to end.
        failed: called each time that a partition cannot be read.
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
        commits: bool,
        close_timeout: float,
        failed: Callable[[PartitionBlocked], None],
    ) -> None:
        self.ownership = Ownership()
        self.identity = ConsumerIdentity(group, "", 0)
        self.taken: set[StreamPartition] = set()
        """Partitions that another member has begun to read. But for a last one at once, no position
        of these is stored before the group confirms that they are still assigned here."""
        self.resets: dict[StreamPartition, StreamReset] = {}
        """Partitions whose position is of another log, until the user says where to read on."""
        self.positions_known = asyncio.Event()
        """Set once it is known where to begin to read the first assignment."""
        self._group = group
        self._member = member
        self._readers = readers
        self._committer = committer
        self._start_positions = start_positions
        self._transfer = transfer
        self._on_assigned = on_assigned
        self._on_revoked = on_revoked
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
        """True if a callback of the user is asking."""
        return self._task is not None and asyncio.current_task() is self._task

    @property
    def blocked(self) -> dict[StreamPartition, LiftbridgeError]:
        """Partitions of this member that cannot be read for now, and why."""
        now = self._loop.time()
        blocked: dict[StreamPartition, LiftbridgeError] = {
            place: error
            for place, error in self._blocked.items()
            if not (self.ownership.is_steady(place, now) and self._readers.is_connected(place))
        }
        every = blocked | self.resets
        return {place: every[place] for place in sorted(every) if place in self.ownership.wanted}

    # Events

    def begin(self) -> None:
        """Call callbacks from now on: the user has the group that they may need."""
        self._begun = True
        self._bell.ring()

    def follow(self) -> None:
        """Take in how the member is now; what is not its own any more is not handed out."""
        core = self._member.core
        if core.assigned_epoch is None:
            if self._seen is not None:
                self._seen = None
                self.ownership.lose()
                self._readers.lose()
                for place in self._readers.partitions():
                    self._committer.forget(*place)
        elif self._seen != (core.consumer, core.assigned_epoch):
            self._seen = (core.consumer, core.assigned_epoch)
            if self.identity.consumer != core.consumer:
                self.identity = ConsumerIdentity(self._group, core.consumer, core.assigned_epoch)
            self._readers.stop(self.ownership.assign(core.assignment))
            # Only now: no subscription of a partition that has gone may be resumed with it.
            self.identity.epoch = core.assigned_epoch
        self._bell.ring()

    def ended(self, place: StreamPartition, error: LiftbridgeError | None) -> None:
        """Handle the end of a reader."""
        taken = isinstance(error, PartitionTaken)
        attempts = self.ownership.ended(
            place, self._loop.time(), taken=taken, again=not isinstance(error, StreamReset)
        )
        if error is not None and attempts:
            self._note_failure(place, attempts, error)
        if isinstance(error, StreamReset):
            self.resets[place] = error
        if taken:
            self._give(place)
        if isinstance(error, PartitionTaken | StreamDeleted):
            self._member.fetch_now()  # the assignment may have changed
        self._bell.ring()

    def _note_failure(self, place: StreamPartition, attempts: int, error: LiftbridgeError) -> None:
        self._failed(PartitionBlocked(self._group, *place, attempts, error))
        if attempts < _BLOCKED_AFTER and not isinstance(error, PartitionPaused):
            return
        self._blocked[place] = error.at(*place)
        if place not in self._warned:
            self._warned.add(place)
            logger.warning(
                "the group %r cannot read a partition that is assigned to this member: %s",
                self._group,
                error,
            )

    def _give(self, place: StreamPartition) -> None:
        """Store a last position for the member that has taken a partition."""
        offset = self._readers.finished(place)
        stored = self._committer.stored.get(StreamPartition(*place), -1)
        first = place not in self.taken
        self.taken.add(place)
        self._committer.forget(*place)
        due = offset if offset is not None and offset > stored else None
        if due is not None and first and self._commits and self._member.is_confirmed:
            self._transfer.give(place, due)

    def seek(self, place: StreamPartition, start: StartAt) -> None:
        """Read a partition from elsewhere."""
        if self.resets.pop(place, None) is not None:
            self._readers.start_over(place)
            self._keep(place, None)
        self._readers.seek(place, start)
        self._transfer.start_chosen(place)
        self.ownership.reopen(place)
        self._bell.ring()

    def put_back(self, reader: PartitionReader, message: Message) -> None:
        """Count the last message of a turn as not handed out, and hand it out again."""
        if self._readers.put_back(reader, message):
            self.ownership.reopen(StreamPartition(message.stream, message.partition))
            self._bell.ring()

    def end(self) -> None:
        """Have `run` give everything up, with a commit, and return."""
        self._ending = True
        if self._handlers_wait is not None:
            limit = self._loop.time() + self._close_timeout / 4
            self._handlers_wait.deadline = min(self._handlers_wait.deadline, limit)
        self._readers.stop(self.ownership.assign(frozenset()))
        self._bell.ring()

    # Steps

    async def run(self) -> None:
        """Follow the assignments until `end`. Cancelling leaves partitions as they are.

        Raises:
            Exception: what a handler of the user raised.
            LiftbridgeError: it cannot be found where to begin.
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
        for place in step.partitions:
            if not step.commit or not self._commits:
                self._committer.forget(*place)
        if step.commit and self._commits:
            await self._commit_last(step.partitions)
        self._readers.give_up(step.partitions)
        for place in step.partitions:
            self._transfer.forget(place)
            self.resets.pop(place, None)
            self._blocked.pop(place, None)
        self.taken -= step.partitions
        self.ownership.revoked(step)

    async def _wait_for_handlers(self, partitions: Assignment) -> None:
        """Wait until no message of these is being handled, as long as closing may take.

        A part of that when the group is closed, so that there is time to commit. A handler that
        takes longer goes on; its message is not committed, and is handled again by somebody.
        """
        limit = self._close_timeout / 4 if self._ending else self._close_timeout
        with anyio.move_on_after(limit) as self._handlers_wait:
            await self._readers.wait_for_turns(partitions)

    async def _commit_last(self, places: Assignment) -> None:
        try:
            await self._committer.commit(places)
        except LiftbridgeError as error:
            if self._ending:
                raise
            logger.debug("a last commit failed: %s", error)  # `failed` was called
        finally:
            for place in places:
                self._committer.forget(*place)

    async def _adopt(self, step: Adopt) -> None:
        found, errors = await self._find(step.partitions)
        told = self.ownership.resolved(found)
        for place in told:
            start, stored = found[place]
            self._readers.adopt(place, start)
            self._keep(place, stored)
            if self.identity.epoch > 0:  # else the group is new, and this is its first member
                self._transfer.adopt(place)
        missing = step.partitions - found.keys()
        late = RequestTimeout(f"the position was not found within {_LOOK:g} s")
        for place, attempts in self.ownership.unresolved(missing, self._loop.time()).items():
            error = errors.get(place, late)
            if isinstance(error, StreamReset) and attempts >= _RESETS:
                self.resets[place] = error
            self._note_failure(place, attempts, error)
        self.positions_known.set()
        if told and self._on_assigned is not None:
            while not self._begun and not self._ending:
                await self._bell.wait()
            if self._begun:
                await _call_back(self._on_assigned, told)
        self.ownership.announced(told)

    async def _find(
        self, places: Assignment
    ) -> tuple[dict[StreamPartition, _Start], dict[StreamPartition, LiftbridgeError]]:
        found: dict[StreamPartition, _Start] = {}
        errors: dict[StreamPartition, LiftbridgeError] = {}

        async def find(place: StreamPartition) -> None:
            known = self.resets.pop(place, None)
            try:
                found[place] = await self._start_positions.find(place)
            except StreamReset as error:
                if known is None or error.offset is None:
                    errors[place] = error
                else:
                    # Raised to the user when the partition is opened, unless a callback seeks.
                    self.resets[place] = error
                    found[place] = StartAt.offset(error.offset + 1), error.offset
            except LiftbridgeError as error:
                errors[place] = error

        with anyio.move_on_after(_LOOK):
            await bounded_gather(places, find)
        for error in errors.values():
            if isinstance(error, _LASTING):
                raise error
        return found, errors

    def _open(self, step: Open) -> None:
        for place in sorted(step.partitions):
            if place in self.taken:
                self.taken.discard(place)
                self._keep(place, None)
            reset = self.resets.get(place)
            fresh = self._transfer.is_fresh(place) and reset is None
            self.ownership.opened(place, self._loop.time())
            reader = self._readers.open(place, self.identity, settled=not fresh, broken=reset)
            if fresh:
                self._transfer.settle(place, reader)

    def _keep(self, place: StreamPartition, stored: int | None) -> None:
        self._committer.keep(*place, partial(self._readers.finished, place), stored)

    async def _idle(self, until: float) -> None:
        wait = until - self._loop.time()
        try:
            async with asyncio.timeout(wait if wait < 10**6 else None):
                await self._bell.wait()
        except TimeoutError:
            pass


async def _call_back(callback: RebalanceCallback, partitions: Assignment) -> None:
    """Call a callback of the user, and await it if it is a coroutine function."""
    answer = callback(partitions)
    if isinstance(answer, Awaitable):
        await answer
