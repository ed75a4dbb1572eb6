"""Takes partitions up and gives them up: what `Ownership` asks for, one step after the other."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Final, TypeAlias

import anyio

from liftbridge_aio.cursor_keeper import CursorKeeper, Place
from liftbridge_aio.errors import (
    InvalidRequest,
    LiftbridgeError,
    NoCommittedPosition,
    PartitionTaken,
    PermissionDenied,
    RequestTimeout,
    StreamDeleted,
    StreamReset,
)
from liftbridge_aio.feed import Doorbell
from liftbridge_aio.for_each import for_each
from liftbridge_aio.model import StartAt
from liftbridge_aio.reading_plan import ConsumerIdentity
from liftbridge_aio.telemetry import PartitionBlocked

from .assignment import Assignment, StreamPartition
from .group_plan import Handler
from .group_reading import GroupReading
from .handover import Handover
from .member import Member
from .ownership import Adopt, Idle, Open, Ownership, Revoke
from .starts import Starts

logger = logging.getLogger("liftbridge_aio.groups")

_Start: TypeAlias = tuple[StartAt, int | None]
_LOOK: Final = 2.0
"""Seconds for a look at where to begin; those that take longer do not keep the others waiting."""
_RESETS: Final = 3
"""How often a log may end before the position: a new leader may just not know its end yet."""
_LASTING: Final = (InvalidRequest, NoCommittedPosition, PermissionDenied)
"""Why a start cannot be found, however often one looks."""


class Rebalancer:
    """Brings what is read into line with what is assigned.

    Args:
        group: id of the group.
        member: the member that reads.
        readings: what it reads.
        keeper: stores how far.
        starts: where to begin.
        handover: passes partitions on to other members, and takes them over.
        on_assigned: the user's, told before anything of these partitions is handed out.
        on_revoked: the user's, told before they are given up.
        commits: whether positions are stored without being asked.
        blocked: told of partitions that cannot be read.
    """

    def __init__(
        self,
        group: str,
        member: Member,
        readings: GroupReading,
        keeper: CursorKeeper,
        starts: Starts,
        handover: Handover,
        *,
        on_assigned: Handler | None,
        on_revoked: Handler | None,
        commits: bool,
        blocked: Callable[[PartitionBlocked], None],
    ) -> None:
        self.ownership = Ownership()
        self.identity = ConsumerIdentity(group, "", 0)
        self.taken: set[StreamPartition] = set()
        """Partitions that somebody else has begun to read: but for a last one at once, no position
        of theirs is stored before the group says that they are this member's after all."""
        self.resets: dict[StreamPartition, StreamReset] = {}
        """Partitions whose position is of another log, until the user says where to read on."""
        self.looked = asyncio.Event()
        """Set once it is known where to begin to read what was assigned first."""
        self._group = group
        self._member = member
        self._readings = readings
        self._keeper = keeper
        self._starts = starts
        self._handover = handover
        self._on_assigned = on_assigned
        self._on_revoked = on_revoked
        self._commits = commits
        self._blocked = blocked
        self._loop = asyncio.get_running_loop()
        self._bell = Doorbell()
        self._seen: tuple[str, int] | None = None
        self._begun = False
        self._ending = False
        self._task: asyncio.Task[object] | None = None

    @property
    def is_handlers_task(self) -> bool:
        """Whether it is a handler of the user that asks."""
        return self._task is not None and asyncio.current_task() is self._task

    # What happens

    def begin(self) -> None:
        """Call handlers from now on: the user has the group in hand that they may need."""
        self._begun = True
        self._bell.ring()

    def follow(self) -> None:
        """Take in how the member is now; what is not its own any more is not handed out."""
        core = self._member.core
        if core.assigned_epoch is None:
            if self._seen is not None:
                self._seen = None
                self.ownership.lose()
                self._readings.lose()
                for place in self._readings.places():
                    self._keeper.forget(*place)
        elif self._seen != (core.consumer, core.assigned_epoch):
            self._seen = (core.consumer, core.assigned_epoch)
            if self.identity.consumer != core.consumer:
                self.identity = ConsumerIdentity(self._group, core.consumer, core.assigned_epoch)
            self._readings.stop(self.ownership.assign(core.assignment))
            # Only now: no subscription of a partition that has gone may be resumed with it.
            self.identity.epoch = core.assigned_epoch
        self._bell.ring()

    def ended(self, place: StreamPartition, error: LiftbridgeError | None) -> None:
        """Take note of a reading that ended by itself."""
        taken = isinstance(error, PartitionTaken)
        attempts = self.ownership.ended(
            place, self._loop.time(), taken=taken, again=not isinstance(error, StreamReset)
        )
        if error is not None and attempts:
            self._blocked(PartitionBlocked(self._group, *place, attempts, error))
        if isinstance(error, StreamReset):
            self.resets[place] = error
        if taken:
            self._give(place)
        if isinstance(error, PartitionTaken | StreamDeleted):
            self._member.hurry()  # the group knows more
        self._bell.ring()

    def _give(self, place: StreamPartition) -> None:
        """Store a last position for the member that has taken a partition."""
        offset = self._readings.finished(place)
        stored = self._keeper.stored.get(Place(*place), -1)
        first = place not in self.taken
        self.taken.add(place)
        self._keeper.forget(*place)
        due = offset if offset is not None and offset > stored else None
        if due is not None and first and self._commits and self._member.is_sure:
            self._handover.give(place, due)

    def seek(self, place: StreamPartition, start: StartAt) -> None:
        """Read a partition from elsewhere."""
        if self.resets.pop(place, None) is not None:
            self._readings.start_over(place)
            self._keep(place, None)
        self._readings.seek(place, start)
        self._handover.sought(place)
        self.ownership.reopen(place)
        self._bell.ring()

    def end(self) -> None:
        """Have `run` give everything up, with a commit, and return."""
        self._ending = True
        self._readings.stop(self.ownership.assign(frozenset()))
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
                        self.looked.set()
                    if self._ending:
                        return
                    await self._idle(step.until)

    async def _revoke(self, step: Revoke) -> None:
        if self._on_revoked is not None and self._begun:
            await self._on_revoked(step.partitions)
        for place in step.partitions:
            if not step.commit or not self._commits:
                self._keeper.forget(*place)
        if step.commit and self._commits:
            await self._commit_last(step.partitions)
        self._readings.give_up(step.partitions)
        for place in step.partitions:
            self._handover.forget(place)
            self.resets.pop(place, None)
        self.taken -= step.partitions
        self.ownership.revoked(step)

    async def _commit_last(self, places: Assignment) -> None:
        try:
            await self._keeper.commit(places)
        except LiftbridgeError as error:
            if self._ending:
                raise
            logger.debug("a last commit failed: %s", error)  # the hook was told
        finally:
            for place in places:
                self._keeper.forget(*place)

    async def _adopt(self, step: Adopt) -> None:
        found, errors = await self._find(step.partitions)
        told = self.ownership.resolved(found)
        for place in told:
            start, stored = found[place]
            self._readings.adopt(place, start)
            self._keep(place, stored)
            if self.identity.epoch > 0:  # else the group is new, and this is its first member
                self._handover.adopt(place)
        missing = step.partitions - found.keys()
        late = RequestTimeout(f"the position was not found within {_LOOK:g} s")
        for place, attempts in self.ownership.unresolved(missing, self._loop.time()).items():
            error = errors.get(place, late)
            if isinstance(error, StreamReset) and attempts >= _RESETS:
                self.resets[place] = error
            self._blocked(PartitionBlocked(self._group, *place, attempts, error))
        self.looked.set()
        if told and self._on_assigned is not None:
            while not self._begun and not self._ending:
                await self._bell.wait()
            if self._begun:
                await self._on_assigned(told)
        self.ownership.told(told)

    async def _find(
        self, places: Assignment
    ) -> tuple[dict[StreamPartition, _Start], dict[StreamPartition, LiftbridgeError]]:
        found: dict[StreamPartition, _Start] = {}
        errors: dict[StreamPartition, LiftbridgeError] = {}

        async def find(place: StreamPartition) -> None:
            known = self.resets.pop(place, None)
            try:
                found[place] = await self._starts.find(place)
            except StreamReset as error:
                if known is None or error.offset is None:
                    errors[place] = error
                else:
                    # It stays so. The reader is told when it is opened, unless a handler seeks.
                    self.resets[place] = error
                    found[place] = StartAt.offset(error.offset + 1), error.offset
            except LiftbridgeError as error:
                errors[place] = error

        with anyio.move_on_after(_LOOK):
            await for_each(places, find)
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
            fresh = self._handover.is_fresh(place) and reset is None
            self.ownership.opened(place, self._loop.time())
            reading = self._readings.open(place, self.identity, settled=not fresh, broken=reset)
            if fresh:
                self._handover.settle(place, reading)

    def _keep(self, place: StreamPartition, stored: int | None) -> None:
        self._keeper.keep(*place, partial(self._readings.finished, place), stored)

    async def _idle(self, until: float) -> None:
        wait = until - self._loop.time()
        try:
            async with asyncio.timeout(wait if wait < 10**6 else None):
                await self._bell.wait()
        except TimeoutError:
            pass
