"""Replication between the brokers of a cluster: fetching, in-sync replicas, failover."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Final

from liftbridge_aio.broker.cluster.controller import Controller
from liftbridge_aio.broker.cluster.node import Node
from liftbridge_aio.broker.cluster.partition import Partition
from liftbridge_aio.broker.errors import BrokerError

from .clock import Clock

_SECOND: Final = 10**9
_CHECKS_PER_TIMEOUT: Final = 5

logger = logging.getLogger("liftbridge_aio.broker")


class Replicator:
    """Copies messages between the brokers of one process.

    A held broker neither fetches nor is fetched from, and reports no leaders.
    """

    def __init__(
        self,
        controller: Controller,
        max_lag: float,
        leader_timeout: float,
        *,
        cuts_committed: bool = False,
    ) -> None:
        """Create a replicator without held brokers.

        Args:
            controller: the controller of the brokers.
            max_lag: seconds after which a silent follower counts as out of sync.
            leader_timeout: seconds after which followers report a silent leader.
            cuts_committed: see `Flaws`.
        """
        self.held: set[str] = set()
        self._controller = controller
        self._max_lag = round(max_lag * _SECOND)
        self._leader_timeout = round(leader_timeout * _SECOND)
        self._interval = min(max_lag, leader_timeout) / _CHECKS_PER_TIMEOUT
        self._cuts_committed = cuts_committed
        self._clock = Clock()
        self._behind: dict[tuple[str, int], None] = {}
        """Partitions with messages that followers lack, in the order in which they got them."""
        self._wake = asyncio.Event()

    def wake(self, partition: Partition) -> None:
        """Schedule a fetch of a partition by its followers."""
        self._behind[partition.stream, partition.number] = None
        self._wake.set()

    async def run(self) -> None:
        """Run until cancelled; may be run again later, in another event loop.

        Failures are logged, and retried in the next round.
        """
        self._wake = asyncio.Event()  # the previous one may belong to another event loop
        loop = asyncio.get_running_loop()
        next_check = loop.time()
        while True:
            self._wake.clear()
            try:
                self._fetch_behind()
                if loop.time() >= next_check:
                    next_check = loop.time() + self._interval
                    self._check_all()
            except Exception:  # the task must survive
                logger.exception("replication failed")
                self._behind.clear()
            if self._behind:
                await asyncio.sleep(0)
                continue
            try:
                async with asyncio.timeout_at(next_check):
                    await self._wake.wait()
            except TimeoutError:
                continue

    def _fetch_behind(self) -> None:
        now = self._clock.now_ns()
        for stream, number in tuple(self._behind):
            more = False
            for node in self._active_nodes():
                follower = node.partition(stream, number)
                if follower is not None and follower.is_following:
                    more |= self._fetch(follower, now)
            if not more:
                self._behind.pop((stream, number), None)

    def _fetch(self, follower: Partition, now: int) -> bool:
        leading_node = self._controller.nodes.get(follower.leader)
        if leading_node is None or not leading_node.is_running:
            if self._cuts_committed:
                follower.cut_to_watermark()
            return False
        if leading_node.server_id in self.held:
            return False
        leader = leading_node.partition(follower.stream, follower.number)
        return leader is not None and follower.fetch_from(leader, now)

    def _check_all(self) -> None:
        now = self._clock.now_ns()
        for node in self._active_nodes():
            for partition in tuple(node.replicas()):
                if partition.is_following:
                    if self._fetch(partition, now):
                        self.wake(partition)
                    self._report_silent_leader(node, partition, now)
        for node in self._active_nodes():
            for partition in tuple(node.replicas()):
                self._adjust_isr(partition, now)

    def _report_silent_leader(self, node: Node, partition: Partition, now: int) -> None:
        if now - partition.last_contact > self._leader_timeout:
            try:
                self._controller.report_leader(partition, node.server_id, now)
            except BrokerError as error:
                logger.debug("cannot report the leader %s: %s", partition.leader, error)

    def _adjust_isr(self, partition: Partition, now: int) -> None:
        leadership = partition.leadership
        for replica in tuple(leadership.followers) if leadership else ():
            if leadership is None or partition.leadership is not leadership:
                return
            is_late = leadership.is_out_of_sync(replica, self._max_lag, now)
            try:
                if is_late and replica in partition.isr:
                    self._controller.shrink_isr(partition, replica, now)
                elif not is_late and replica not in partition.isr:
                    self._controller.expand_isr(partition, replica, now)
            except BrokerError as error:
                logger.debug("cannot change the replicas in sync: %s", error)

    def _active_nodes(self) -> Iterator[Node]:
        return (
            node
            for server_id, node in self._controller.nodes.items()
            if node.is_running and server_id not in self.held
        )
