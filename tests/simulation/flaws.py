"""The flaws of real servers that the brokers of a world have, and what is lost by them.

With all but `cuts_committed` every promise holds. With that one servers lose messages that they had
acked, and give their offsets to others. A reader that had read further is told by `StreamReset`, if
it can know, and else misses the others, too. Both are excused, and nothing else is. What works
exactly once has lost its own records then, so only programs that read at least once run there.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Collection
from dataclasses import fields
from typing import Final

from liftbridge_aio.broker import EmbeddedCluster, Flaws
from liftbridge_aio.broker.storage.core.log import PartitionLog
from liftbridge_aio.model import Message
from liftbridge_aio.testing.simulation.world import World

CHANCE: Final = 1 / 4
"""The chance of each flaw."""


def drawn_flaws(seed: int) -> tuple[str, ...]:
    """Return the names of the flaws that the brokers have in the world of a seed."""
    chance = random.Random(f"{seed}:flaws")
    return tuple(each.name for each in fields(Flaws) if chance.random() < CHANCE)


class CutMessages:
    """All that is cut off the logs of a world.

    Args:
        world: before it runs.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._values: defaultdict[tuple[str, int, int], set[bytes]] = defaultdict(set)
        """By stream, partition and offset."""
        world.replaced.append((PartitionLog, "truncate", self._recording(PartitionLog.truncate)))

    def _recording(
        self, truncate: Callable[[PartitionLog, int], None]
    ) -> Callable[[PartitionLog, int], None]:
        """Return `PartitionLog.truncate` so that it records what it cuts off."""

        def recorded(log: PartitionLog, next_offset: int) -> None:
            for message in log.read_stored(max(next_offset, 0), log.next_offset):
                place = message.stream, message.partition, message.offset
                self._values[place].add(message.value)
            truncate(log, next_offset)

        return recorded

    @property
    def places(self) -> Collection[tuple[str, int]]:
        """The partitions whose log was cut, by stream and number."""
        cut = self._values if self._world.flaws.cuts_committed else ()
        return {(stream, partition) for stream, partition, _ in cut}

    async def look(self) -> None:
        """Do nothing: it is told of each cut."""

    def excused(self, stream: str) -> set[bytes]:
        """Return the values that are gone from a stream, or stand at an offset of such a one."""
        if not self._values or not self._world.flaws.cuts_committed:
            return set()
        cluster = self._world.cluster
        stored = {
            (message.partition, message.offset): message.value
            for message in _stored(cluster, stream)
        }
        kept = set(stored.values())
        excused = set()
        for (name, partition, offset), values in self._values.items():
            found = stored.get((partition, offset))
            if name == stream and found not in values:
                excused |= values - kept
                excused |= {found} if found is not None else set()
        return excused


def _stored(cluster: EmbeddedCluster, stream: str) -> list[Message]:
    controller = cluster._controller
    found = controller.leader().stream(stream)
    assert found is not None
    messages: list[Message] = []
    for number, partition in found.partitions.items():
        leading = controller.nodes[partition.leader].partition(stream, number)
        assert leading is not None
        messages += leading.log.read_stored(0, leading.log.next_offset)
    return messages
