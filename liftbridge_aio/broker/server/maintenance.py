"""The background task of a broker: cleaning, pausing, watermarks, expelling silent members."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from liftbridge_aio.broker.cluster.group_controller import GroupController
from liftbridge_aio.broker.cluster.partition import Partition
from liftbridge_aio.broker.errors import BrokerError
from liftbridge_aio.broker.flaws import NOTE_INTERVAL

from .broker_context import BrokerContext

_MAX_SLEEP: Final = 1.0  # seconds; the clock may be set meanwhile
_SECOND: Final = 10**9
_NEVER: Final = 2**63

logger = logging.getLogger("liftbridge_aio.broker")


class Maintenance:
    """Cleans and pauses partitions and expels members when they are due."""

    def __init__(self, context: BrokerContext, groups: GroupController) -> None:
        """Maintain a broker, and the groups that it coordinates."""
        self._context = context
        self._groups = groups
        self._changed = asyncio.Event()
        self._due = 0
        self._next_note = context.clock.now_ns() + round(NOTE_INTERVAL * _SECOND)

    async def run(self) -> None:
        """Run until cancelled. Failures are logged, and retried in the next round."""
        self._context.controller.watch(self._changed.set)
        try:
            while True:
                self._changed.clear()
                try:
                    sleep = self._run_once()
                except Exception:  # the task must survive
                    logger.exception("maintenance failed")
                    sleep = _MAX_SLEEP
                try:
                    async with asyncio.timeout(sleep):
                        await self._changed.wait()
                except TimeoutError:
                    continue
        finally:
            self._context.controller.unwatch(self._changed.set)

    def _run_once(self) -> float:
        now = self._context.clock.now_ns()
        self._expel_silent_members(now)
        node = self._context.node
        activated = node.take_activated()
        self._due = min([self._due, *(due for one in activated if (due := one.next_due()))])
        if self._due <= now:
            self._maintain_partitions(now)
        if self._next_note <= now:
            self._next_note = now + round(NOTE_INTERVAL * _SECOND)
            node.note_high_watermarks()
        deadline = node.liveness.next_deadline()
        due = self._due if deadline is None else min(self._due, deadline)
        return min(max(due - now, 0) / _SECOND, _MAX_SLEEP)

    def _maintain_partitions(self, now: int) -> None:
        for partition in tuple(self._context.node.replicas()):
            if partition.is_idle(now):
                self._pause(partition, now)
            partition.clean(now)
        dues = (partition.next_due() for partition in self._context.node.replicas())
        self._due = min((due for due in dues if due is not None), default=_NEVER)

    def _pause(self, partition: Partition, now: int) -> None:
        try:
            self._context.controller.pause(partition.stream, (partition.number,), now)
        except BrokerError as error:
            logger.warning("cannot pause %s/%d: %s", partition.stream, partition.number, error)
            partition.reset_idle_time(now)

    def _expel_silent_members(self, now: int) -> None:
        for group, consumer in self._context.node.liveness.expired(now):
            try:
                self._groups.leave_group(group, consumer, now, expired=True)
            except BrokerError as error:
                logger.info("cannot expel %s from group %s yet: %s", consumer, group, error)
