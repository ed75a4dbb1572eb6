"""What brokers of a cluster do about each other: followers fetch, the silent are noticed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Final

from .clock import Clock
from .controller import Controller
from .errors import BrokerError
from .node import Node
from .partition import Partition
from .replication import fetch

_SECOND: Final = 10**9
_LOOKS_PER_TIMEOUT: Final = 5

_log = logging.getLogger("liftbridge_aio.broker")


class Replicator:
    """Moves messages between the brokers of one process.

    A broker that is held neither fetches nor is fetched from, and reports nobody.
    """

    def __init__(self, controller: Controller, max_lag: float, leader_timeout: float) -> None:
        """Begin with nobody held.

        Args:
            controller: whose brokers these are.
            max_lag: seconds after which a silent follower counts as out of sync.
            leader_timeout: seconds after which followers report a silent leader.
        """
        self.held: set[str] = set()
        self._controller = controller
        self._max_lag = round(max_lag * _SECOND)
        self._leader_timeout = round(leader_timeout * _SECOND)
        self._interval = min(max_lag, leader_timeout) / _LOOKS_PER_TIMEOUT
        self._clock = Clock()
        self._behind: set[tuple[str, int]] = set()
        self._wake = asyncio.Event()

    def wake(self, partition: Partition) -> None:
        """Have followers fetch a partition soon."""
        self._behind.add((partition.stream, partition.number))
        self._wake.set()

    async def run(self) -> None:
        """Work until cancelled; once more after that, in another event loop if need be.

        What fails is logged, and tried again with the next look.
        """
        self._wake = asyncio.Event()  # the one before may belong to another event loop
        loop = asyncio.get_running_loop()
        next_look = loop.time()
        while True:
            self._wake.clear()
            try:
                self._fetch_behind()
                if loop.time() >= next_look:
                    next_look = loop.time() + self._interval
                    self._look_at_all()
            except Exception:  # noqa: BLE001 - other partitions must go on
                _log.exception("replication failed")
                self._behind.clear()
            if self._behind:
                await asyncio.sleep(0)
                continue
            try:
                async with asyncio.timeout_at(next_look):
                    await self._wake.wait()
            except TimeoutError:
                continue

    def _fetch_behind(self) -> None:
        now = self._clock.now_ns()
        for stream, number in tuple(self._behind):
            more = False
            for node in self._working():
                follower = node.partition(stream, number)
                if follower is not None and follower.is_following:
                    more |= self._fetch(node, follower, now)
            if not more:
                self._behind.discard((stream, number))

    def _fetch(self, node: Node, follower: Partition, now: int) -> bool:
        leading_node = self._controller.nodes.get(follower.leader)
        if (
            leading_node is None
            or not leading_node.is_running
            or leading_node.server_id in self.held
        ):
            return False
        leader = leading_node.partition(follower.stream, follower.number)
        return leader is not None and fetch(leader, follower, node.server_id, now)

    def _look_at_all(self) -> None:
        now = self._clock.now_ns()
        for node in self._working():
            for partition in tuple(node.partitions()):
                if partition.is_following:
                    if self._fetch(node, partition, now):
                        self.wake(partition)
                    self._report_silent_leader(node, partition, now)
        for node in self._working():
            for partition in tuple(node.partitions()):
                self._adjust_isr(partition, now)

    def _report_silent_leader(self, node: Node, partition: Partition, now: int) -> None:
        if now - partition.leader_seen > self._leader_timeout:
            try:
                self._controller.report_leader(partition, node.server_id, now)
            except BrokerError as error:
                _log.debug("cannot report %s: %s", partition.leader, error)

    def _adjust_isr(self, partition: Partition, now: int) -> None:
        leading = partition.leading
        for replica in tuple(leading.followers) if leading else ():
            if leading is None or partition.leading is not leading:
                return
            is_late = leading.out_of_sync(replica, self._max_lag, now)
            try:
                if is_late and replica in partition.isr:
                    self._controller.shrink_isr(partition, replica, now)
                elif not is_late and replica not in partition.isr:
                    self._controller.expand_isr(partition, replica, now)
            except BrokerError as error:
                _log.debug("cannot change the replicas in sync: %s", error)

    def _working(self) -> Iterator[Node]:
        return (
            node
            for server_id, node in self._controller.nodes.items()
            if node.is_running and server_id not in self.held
        )
