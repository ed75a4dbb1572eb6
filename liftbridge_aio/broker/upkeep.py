"""What a broker does by itself while it runs: cleaning, pausing, expelling silent members."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from .errors import BrokerError
from .group_controller import GroupController
from .member import Member
from .partition import Partition

_MAX_SLEEP: Final = 1.0  # seconds; somebody may set the clock
_SECOND: Final = 10**9
_NEVER: Final = 2**63

_log = logging.getLogger("liftbridge_aio.broker")


class Upkeep:
    """Does what is due, and sleeps until something is."""

    def __init__(self, member: Member, groups: GroupController) -> None:
        """Look after a broker, and the groups that it coordinates."""
        self._member = member
        self._groups = groups
        self._changed = asyncio.Event()
        self._due = 0

    async def run(self) -> None:
        """Work until cancelled. What fails is logged, and tried again with the next round."""
        self._member.controller.watch(self._changed.set)
        try:
            while True:
                self._changed.clear()
                try:
                    sleep = self._do_what_is_due()
                except Exception:  # noqa: BLE001 - the rest of the work must go on
                    _log.exception("the upkeep of a broker failed")
                    sleep = _MAX_SLEEP
                try:
                    async with asyncio.timeout(sleep):
                        await self._changed.wait()
                except TimeoutError:
                    continue
        finally:
            self._member.controller.unwatch(self._changed.set)

    def _do_what_is_due(self) -> float:
        now = self._member.clock.now_ns()
        self._expel_silent_members(now)
        node = self._member.node
        awake = node.take_awakened()
        self._due = min([self._due, *(due for one in awake if (due := one.next_due()))])
        if self._due <= now:
            self._look_at_all(now)
        deadline = node.liveness.next_deadline()
        due = self._due if deadline is None else min(self._due, deadline)
        return min(max(due - now, 0) / _SECOND, _MAX_SLEEP)

    def _look_at_all(self, now: int) -> None:
        for partition in tuple(self._member.node.partitions()):
            if partition.is_idle(now):
                self._pause(partition, now)
            partition.clean(now)
        dues = (partition.next_due() for partition in self._member.node.partitions())
        self._due = min((due for due in dues if due is not None), default=_NEVER)

    def _pause(self, partition: Partition, now: int) -> None:
        try:
            self._member.controller.pause(partition.stream, (partition.number,), now)
        except BrokerError as error:
            _log.warning("cannot pause %s/%d: %s", partition.stream, partition.number, error)
            partition.stay_awake(now)

    def _expel_silent_members(self, now: int) -> None:
        for group, consumer in self._member.node.liveness.expired(now):
            try:
                self._groups.leave_group(group, consumer, now, expired=True)
            except BrokerError as error:
                _log.info("%s stays in group %s for now: %s", consumer, group, error)
