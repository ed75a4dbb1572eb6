"""The flaws of the servers of a world, and what is lost by them.

They are those of `Flaws` and of disks. With all but the `LOSSY` ones every promise holds. With
those servers lose messages that they had acked, and give their offsets to others. A reader that had
read further is told by `StreamReset`, if it can know, and else misses the others, too. Both are
excused, and nothing else is. What works exactly once has lost its own records then, so only
programs that read at least once run there.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Collection
from dataclasses import fields
from typing import Final

from liftbridge_aio.broker import Flaws
from liftbridge_aio.broker.cluster.node import Node
from liftbridge_aio.broker.cluster.partition import Partition
from liftbridge_aio.broker.storage.core.log import PartitionLog
from liftbridge_aio.model import Message
from liftbridge_aio.testing.simulation.world import World

CHANCE: Final = 1 / 4
"""The chance of each flaw of `Flaws`."""
SYNCED_DISKS: Final = "synced_disks"
"""Logs are on disks that store each write at once; a crash tears the next one."""
UNSYNCED_DISKS: Final = "unsynced_disks"
"""Logs are on disks, and a crash loses a part of what was not synced."""
DISKS: Final = {"": 3, SYNCED_DISKS: 2, UNSYNCED_DISKS: 1}
"""Where logs are, each with its weight; else in memory."""
LOSSY: Final = frozenset({"cuts_committed", UNSYNCED_DISKS})


def drawn_flaws(seed: int) -> tuple[str, ...]:
    """Return the names of the flaws that the servers have in the world of a seed."""
    chance = random.Random(f"{seed}:flaws")
    flaws = [each.name for each in fields(Flaws) if chance.random() < CHANCE]
    [disks] = chance.choices([*DISKS], [*DISKS.values()])
    return (*flaws, disks) if disks else tuple(flaws)


def flaws_of(names: Collection[str]) -> Flaws:
    """Return those of them that brokers have whatever their disks do."""
    return Flaws(**{each: True for each in names if each not in DISKS})


class LostMessages:
    """All that the servers of a world have lost: it was cut off a log, or was not on a disk.

    Args:
        world: before it runs.
        are_excused: whether they may be lost; else nothing is excused.
    """

    def __init__(self, world: World, *, are_excused: bool) -> None:
        self.are_excused = are_excused
        self._world = world
        self._values: defaultdict[tuple[str, int, int], set[bytes]] = defaultdict(set)
        """By stream, partition and offset."""
        world.replaced.append((PartitionLog, "truncate", self._recording(PartitionLog.truncate)))

    def record(self, message: Message) -> None:
        """Record one that a server has lost."""
        self._values[message.stream, message.partition, message.offset].add(message.value)

    def has(self, message: Message) -> bool:
        """Return True if a server has lost it."""
        place = message.stream, message.partition, message.offset
        return message.value in self._values.get(place, ())

    def _recording(
        self, truncate: Callable[[PartitionLog, int], None]
    ) -> Callable[[PartitionLog, int], None]:
        """Return `PartitionLog.truncate` so that it records what it cuts off."""

        def recorded(log: PartitionLog, next_offset: int) -> None:
            for message in log.read_stored(max(next_offset, 0), log.next_offset):
                self.record(message)
            truncate(log, next_offset)

        return recorded

    @property
    def places(self) -> Collection[tuple[str, int]]:
        """The partitions of which something is lost, by stream and number."""
        lost = self._values if self.are_excused else ()
        return {(stream, partition) for stream, partition, _ in lost}

    async def look(self) -> None:
        """Do nothing: it is told of each loss."""

    def excused(self, stream: str) -> set[bytes]:
        """Return the values that are gone from a stream, or stand at an offset of such a one.

        Each replica may have given such an offset to another message.
        """
        places = [(each, self._values[each]) for each in self._values if each[0] == stream]
        if not self.are_excused or not places:
            return set()
        controller = self._world.cluster._controller
        found = controller.leader().stream(stream)
        assert found is not None
        excused: set[bytes] = set()
        for number, partition in found.partitions.items():
            logs = {each: _values(controller.nodes[each], partition) for each in partition.replicas}
            leading = logs[partition.leader]
            kept = set(leading.values())
            for (_, at, offset), lost in places:
                values = lost.union(log[offset] for log in logs.values() if offset in log)
                if at == number and values != {leading.get(offset)}:
                    excused |= values - kept
                    excused |= {leading[offset]} if offset in leading else set()
        return excused


def _values(node: Node, partition: Partition) -> dict[int, bytes]:
    """Return the values of the log that a node has of a partition, by their offsets."""
    replica = node._streams[partition.stream].partitions[partition.number]  # it may forget them
    messages = replica.log.read_stored(0, replica.log.next_offset)
    return {each.offset: each.value for each in messages}
