"""What a broker does by itself while it runs: cleaning, pausing, expelling silent members."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from .errors import BrokerError
from .group_controller import GroupController
from .member import Member

_MAX_SLEEP: Final = 1.0  # seconds; somebody may set the clock
_SECOND: Final = 10**9

_log = logging.getLogger("liftbridge_aio.broker")


class Upkeep:
    """Does what is due, and sleeps until something is."""

    def __init__(self, member: Member, groups: GroupController) -> None:
        """Look after a broker, and the groups that it coordinates."""
        self._member = member
        self._groups = groups
        self._changed = asyncio.Event()

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
        self._pause_idle_partitions(now)
        self._clean(now)
        due = self._next_due()
        return _MAX_SLEEP if due is None else min(max(due - now, 0) / _SECOND, _MAX_SLEEP)

    def _next_due(self) -> int | None:
        node = self._member.node
        dues = [one.clean_due for one in node.partitions() if one.is_cleaned]
        dues += [due for one in node.partitions() if (due := one.pause_due()) is not None]
        deadline = node.liveness.next_deadline()
        if deadline is not None:
            dues.append(deadline)
        return min(dues, default=None)

    def _clean(self, now: int) -> None:
        for partition in self._member.node.partitions():
            if partition.is_cleaned and partition.clean_due <= now:
                partition.clean(now)

    def _pause_idle_partitions(self, now: int) -> None:
        for partition in tuple(self._member.node.partitions()):
            due = partition.pause_due()
            if due is not None and due < now:
                try:
                    self._member.controller.pause(partition.stream, (partition.number,), now)
                except BrokerError as error:
                    _log.warning(
                        "cannot pause %s/%d: %s", partition.stream, partition.number, error
                    )
                    partition.postpone_pause(now)

    def _expel_silent_members(self, now: int) -> None:
        for group, consumer in self._member.node.liveness.expired(now):
            try:
                self._groups.leave_group(group, consumer, now, expired=True)
            except BrokerError as error:
                _log.info("%s stays in group %s for now: %s", consumer, group, error)
