"""The brokers of a world on disks, as a lone broker has its data there.

Each has a journal of what the cluster decides, and logs. A broker that stops leaves its files as
they are, or its host loses power, alone or with all of the cluster, and the disk has what it had
stored by then. High watermarks and leader epochs are not on the disk, and kept: `Flaws` lose them.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from liftbridge_aio.broker import BrokerState, EmbeddedCluster
from liftbridge_aio.broker.cluster.controller import Controller
from liftbridge_aio.broker.cluster.node import Node
from liftbridge_aio.broker.cluster.partition import Partition
from liftbridge_aio.broker.server.clock import Clock
from liftbridge_aio.broker.server.local_cluster import Backing
from liftbridge_aio.broker.storage.core.log import PartitionLog
from liftbridge_aio.broker.storage.core.operation_list import existing_streams
from liftbridge_aio.broker.storage.core.operations import CreateStream, Operation
from liftbridge_aio.broker.storage.data_directory import DataDirectory
from liftbridge_aio.broker.storage.storage import DiskStorage
from liftbridge_aio.model import Message
from liftbridge_aio.testing.simulation.world import World

from .disk import Disk, stand_ins
from .flaws import LostMessages

POWER: Final = 0.4
"""The chance that a broker stops because its host has no power."""
POWER_OF_ALL: Final = 0.3
"""The chance that all brokers of the cluster stop with it for that reason; they start at once."""

SEGMENT: Final = 2_000
"""Bytes after which a segment of a log is full: some twenty orders."""


def put_on_disks(world: World, losses: LostMessages, folder: Path, *, are_synced: bool) -> None:
    """Give each broker a disk.

    Args:
        world: before it runs.
        losses: is told of what is lost.
        folder: where the disks are.
        are_synced: True: each write is stored at once.
    """
    chance = random.Random(f"{world.seed}:disks")
    disks: list[Disk] = []
    stored: dict[str, _StoredNode] = {}
    opener, stop_node = EmbeddedCluster._opener, EmbeddedCluster.stop_node

    def on_disk(cluster: EmbeddedCluster, node: Node) -> Callable[[Clock], Backing]:
        disk = Disk(folder / node.server_id, chance, is_synced=are_synced)
        disks.append(disk)
        logs = stored[node.server_id] = _StoredNode(cluster._controller, node, disk, losses)
        open_backing = opener(cluster, node)

        def store(index: int, operation: Operation) -> None:
            for each in cluster.nodes:
                if stored[each].runs:
                    stored[each].store(index, operation)

        cluster._controller._store = store

        def open_on_disk(clock: Clock) -> Backing:
            logs.open()
            return replace(open_backing(clock), close=logs.close)

        return open_on_disk

    async def stop(cluster: EmbeddedCluster, server_id: str) -> None:
        drawn = chance.random()
        stopped = [server_id]
        if drawn < POWER_OF_ALL:
            others = (
                each for each, node in cluster.nodes.items() if node.state is BrokerState.RUNNING
            )
            stopped += [each for each in others if each != server_id]
        for each in stopped:
            stored[each].has_power = drawn >= POWER_OF_ALL + POWER
        await asyncio.gather(*(stop_node(cluster, each) for each in stopped))
        for each in stopped[1:]:
            await cluster.start_node(each)

    world.replaced += [
        *stand_ins(disks),
        (EmbeddedCluster, "_opener", on_disk),
        (EmbeddedCluster, "stop_node", stop),
    ]


class _SmallSegments(DiskStorage):
    """Logs whose segments are full soon."""

    def open_log(self, stream: CreateStream, index: int, number: int) -> PartitionLog:
        """Open a log."""
        config = replace(stream.config, segment_max_bytes=SEGMENT)
        return super().open_log(replace(stream, config=config), index, number)


class _StoredNode:
    """What a broker has on its disk: what the cluster has decided, and logs.

    Args:
        controller: of the cluster.
        node: the broker's.
        disk: its own.
        losses: is told of what is lost.

    Attributes:
        has_power: False: its host has lost power when it stops.
        runs: whether its process does, though it may know nothing yet.
    """

    _storage: DiskStorage
    """Of the process that runs."""

    def __init__(
        self, controller: Controller, node: Node, disk: Disk, losses: LostMessages
    ) -> None:
        self._controller = controller
        self._node = node
        self._disk = disk
        self._losses = losses
        self.has_power = True
        self.runs = False
        self._directory: DataDirectory | None = None
        self._before: dict[Partition, tuple[int, Sequence[Message]]] = {}
        """What was in the logs when the last process ended, and the numbers of their streams."""
        self._operations = 0
        """How many are in the journal."""

    def store(self, index: int, operation: Operation) -> None:
        """Store an operation before it is applied."""
        self._storage.store(index, operation)
        self._operations += 1

    def close(self) -> None:
        """End as a process does that is killed."""
        assert self._directory is not None
        self.runs = False
        for stream in self._node._streams.values():
            for partition in stream.partitions.values():
                if (log := partition._opened) is not None:
                    messages = log.read_stored(0, log.next_offset)
                    self._before[partition] = stream.index, messages
        self._directory._release()
        if not self.has_power:
            self._disk.crash()

    def open(self) -> None:
        """Begin as a process does: all that there is is on the disk."""
        if self._directory is not None:
            self._directory._release()  # it was read meanwhile
        self._disk.restore()
        self._directory = DataDirectory(self._disk.root)
        self._storage = self._node._storage = _SmallSegments(self._directory)
        stored, operations = self._storage.operations, self._controller.operations_after(0)
        assert stored == operations[: self._operations], "a stored operation is lost"
        self._storage.check_streams()
        before, self._before = self._before, {}
        existing = existing_streams(stored)
        for partition, (number, messages) in before.items():
            if number in existing:  # else it is deleted, which the broker learns soon
                self._reopen(partition, messages)
        self.has_power = True
        self.runs = True
        for missed in operations[self._operations :]:
            self.store(*missed)

    def _reopen(self, partition: Partition, before: Sequence[Message]) -> None:
        """Open a log again, and check what is in it."""
        memory, partition._opened = partition._opened, None
        assert memory is not None
        log = partition.open()
        log._epochs = memory._epochs
        log._epochs.forget_from(log.next_offset)
        log._noted_watermark = min(memory._noted_watermark, log.newest_offset)
        log.commit(memory.high_watermark)
        stored = log.read_stored(0, log.next_offset)
        assert [each.offset for each in stored] == [*range(len(stored))], "a log has a gap"
        left = {each.offset: each.value for each in before}
        for message in stored:
            if message.value == left.get(message.offset):
                del left[message.offset]
            else:
                assert self._losses.has(message), f"{message} was not there"  # it was cut off
        for message in before:
            if message.offset in left:
                assert not self.has_power, f"{message} is lost with a process"
                assert not self._disk.is_synced, f"{message} is lost, though it was stored"
                self._losses.record(message)
