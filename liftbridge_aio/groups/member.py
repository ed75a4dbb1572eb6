"""Keeps a member in its group by making the calls that `Membership` requests."""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
import secrets
from collections.abc import Callable, Iterator
from typing import Final

from liftbridge_aio._core.status import GroupRefusal
from liftbridge_aio._subscribe.receive_buffer import Doorbell
from liftbridge_aio.errors import LiftbridgeError, RequestTimeout

from .core.group_state import OVER, GroupState
from .core.membership import Membership
from .core.steps import Answer, Call, Fetch, Fetched, Join, Locate, Refused, Rest
from .group_calls import GroupCalls

logger = logging.getLogger("liftbridge_aio.groups")

_TICK: Final = 0.25
"""Seconds between measurements of the event loop's lag; shorter lags are ignored."""


class Member:
    """A member of a group, whose own task keeps heartbeats independent of readers and handlers.

    Args:
        calls: makes the calls.
        consumer_id: the id of the member; None for a new one at each join.
        changed: called after each reply.
    """

    def __init__(
        self, calls: GroupCalls, consumer_id: str | None, changed: Callable[[], None]
    ) -> None:
        self.core = Membership(_ids(consumer_id), random.random, own=consumer_id is None)
        self._calls = calls
        self._changed = changed
        self._loop = asyncio.get_running_loop()
        self.obstacle: LiftbridgeError | None = None
        """The error of the last failed call; None after a successful fetch of the assignment."""
        self._bell = Doorbell()
        self._call: asyncio.Timeout | None = None

    @property
    def is_confirmed(self) -> bool:
        """True if the group cannot have expelled this member."""
        return self._loop.time() < self.core.lease_until

    def begin(self, timeout: float) -> None:
        """Request a join, which `run` executes."""
        now = self._loop.time()
        self.core.begin(now, now + timeout)

    def fetch_now(self) -> None:
        """Request an immediate fetch of the assignment."""
        self.core.fetch_now(self._loop.time())
        self._bell.ring()

    def leave(self, timeout: float) -> None:
        """Request to leave, which `run` executes before it ends."""
        now = self._loop.time()
        self.core.leave(now, now + timeout)
        if self._call is not None:
            # A join is not cancelled: if the leave overtook it, a member would remain in the group.
            self._call.reschedule(now)
        self._bell.ring()

    async def run(self) -> None:
        """Join and stay a member until it leaves or fails. Cancelling ends it without leaving.

        Raises:
            ClientClosed: the client was closed.
        """
        core = self.core
        try:
            while core.state not in OVER:
                step = core.next_step(self._loop.time())
                if isinstance(step, Rest):
                    await self._rest(step.until)
                else:
                    await self._make(step)
                self._changed()
        finally:
            core.cut_off()

    async def _make(self, call: Call) -> None:
        core = self.core
        began = self._loop.time()
        stall = _LoopLag(self._loop)
        try:
            async with asyncio.timeout(None) as limit:
                self._call = None if isinstance(call, Join) else limit
                answer = await self._calls.make(call, core.call_limit)
        except TimeoutError as error:
            if isinstance(error, LiftbridgeError):
                raise
            broken_off = RequestTimeout("cancelled to leave the group")
            answer = Refused(GroupRefusal.LOST, broken_off, unknown=True)
        finally:
            self._call = None
            stall.end()
        if isinstance(answer, Refused):
            self.obstacle = answer.error
        elif isinstance(answer, Fetched):
            self.obstacle = None
        core.stalled(stall.seconds)
        if stall.seconds and _is_lost(call, answer):
            return  # by a blocked loop: the answer may have come in time, so call again
        before = core.state
        core.take(call, began, self._loop.time(), answer)
        if isinstance(answer, Refused):
            logger.debug("%r: %s (%s)", call, answer.why.value, answer.error)
        if core.state is not before:
            logger.debug("%s: %s, epoch %d", core.consumer, core.state.value, core.epoch)

    async def _rest(self, until: float) -> None:
        wait = until - self._loop.time()
        try:
            async with asyncio.timeout(wait if wait < 10**6 else None):
                await self._bell.wait()
        except TimeoutError:
            late = self._loop.time() - until
            if late > _TICK:
                self.core.stalled(late)

    @property
    def state(self) -> GroupState:
        """The state of the member."""
        return self.core.state


def _ids(consumer_id: str | None) -> Iterator[str]:
    """Yield the given id, or a new one each time: servers may confuse two members of one id."""
    if consumer_id is not None:
        return itertools.repeat(consumer_id)
    return (secrets.token_hex(8) for _ in itertools.count())


def _is_lost(call: Call, answer: Answer) -> bool:
    """Return True if a call without side effects was not answered."""
    asks = isinstance(call, Fetch | Locate)
    return asks and isinstance(answer, Refused) and answer.why is GroupRefusal.LOST


class _LoopLag:
    """A measurement of how long the event loop was blocked."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.seconds = 0.0
        self._loop = loop
        self._last = loop.time()
        self._next = loop.call_later(_TICK, self._look)

    def _look(self) -> None:
        self._measure()
        self._next = self._loop.call_later(_TICK, self._look)

    def _measure(self) -> None:
        before, self._last = self._last, self._loop.time()
        late = self._last - before - _TICK
        if late > _TICK:
            self.seconds += late

    def end(self) -> None:
        """Stop measuring."""
        self._next.cancel()
        self._measure()
