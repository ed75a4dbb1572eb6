"""Keeps a member in its group: makes the calls that `Membership` asks for, one after the other."""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
import secrets
from collections.abc import Callable, Iterator

from liftbridge_aio.errors import LiftbridgeError, RequestTimeout
from liftbridge_aio.feed import Doorbell
from liftbridge_aio.status import GroupRefusal

from .calls import GroupCalls
from .group_state import OVER, GroupState
from .membership import Membership
from .steps import Call, Join, Refused, Rest

logger = logging.getLogger("liftbridge_aio.groups")


class Member:
    """Runs in a task of its own, so that no reader or handler keeps it from its sign of life.

    Args:
        calls: makes the calls.
        consumer_id: the member's id; None: a new one each time that it joins.
        changed: called after each answer.
    """

    def __init__(
        self, calls: GroupCalls, consumer_id: str | None, changed: Callable[[], None]
    ) -> None:
        self.core = Membership(_ids(consumer_id), random.random, own=consumer_id is None)
        self._calls = calls
        self._changed = changed
        self._loop = asyncio.get_running_loop()
        self._bell = Doorbell()
        self._call: asyncio.Timeout | None = None

    @property
    def is_sure(self) -> bool:
        """Whether this is a member for certain, by the time that the group gives its members."""
        return self._loop.time() < self.core.lease_until

    def begin(self, timeout: float) -> None:
        """Join from now on; `run` does it."""
        now = self._loop.time()
        self.core.begin(now, now + timeout)

    def hurry(self) -> None:
        """Fetch the assignment at once."""
        self.core.hurry(self._loop.time())
        self._bell.ring()

    def leave(self, timeout: float) -> None:
        """Leave from now on; `run` does it, and ends."""
        now = self._loop.time()
        self.core.leave(now, now + timeout)
        if self._call is not None:
            # Not a join: a leave that overtook it would leave a member behind.
            self._call.reschedule(now)
        self._bell.ring()

    async def run(self) -> None:
        """Be a member until it has left or failed. Cancelling ends it without a word.

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
        try:
            async with asyncio.timeout(None) as limit:
                self._call = None if isinstance(call, Join) else limit
                answer = await self._calls.make(call, core.call_limit)
        except TimeoutError as error:
            if isinstance(error, LiftbridgeError):
                raise
            broken_off = RequestTimeout("broken off to leave the group")
            answer = Refused(GroupRefusal.LOST, broken_off, unknown=True)
        finally:
            self._call = None
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
            pass

    @property
    def state(self) -> GroupState:
        """How the member is."""
        return self.core.state


def _ids(consumer_id: str | None) -> Iterator[str]:
    """The id that was given, or a new one each time: servers may mix up two lives of one id."""
    if consumer_id is not None:
        return itertools.repeat(consumer_id)
    return (secrets.token_hex(8) for _ in itertools.count())
