"""One consumer group: its members, and the partitions assigned to each.

Pure. Partitions are assigned exactly as by Liftbridge 1.9.0, so all nodes that apply the same
operations compute the same assignments.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence

FIRST_EPOCH = 0
"""The epoch of a new group; later ones are indexes of operations."""


class GroupMember:
    """A consumer in a group."""

    def __init__(self, consumer: str, streams: Iterable[str]) -> None:
        """Create a group member without partitions.

        Args:
            consumer: id of the consumer.
            streams: the streams that it reads.
        """
        self.consumer = consumer
        self.streams = set(streams)
        self.assignments: dict[str, list[int]] = {}

    @property
    def load(self) -> int:
        """Number of its partitions, over all streams."""
        return sum(map(len, self.assignments.values()))


class ConsumerGroup:
    """A consumer group; its epoch changes with its coordinator, members and streams."""

    def __init__(self, name: str, coordinator: str, partition_count: Callable[[str], int]) -> None:
        """Create a consumer group without members.

        Args:
            name: id of the group.
            coordinator: id of the broker that coordinates the group.
            partition_count: returns the number of partitions of a stream, 0 if it does not exist.
        """
        self.name = name
        self.coordinator = coordinator
        self.epoch = FIRST_EPOCH
        self._partition_count = partition_count
        self._members: dict[str, GroupMember] = {}
        # A stream stays when its last subscriber leaves, as on a real server.
        self._subscribers: dict[str, dict[str, GroupMember]] = {}

    @property
    def members(self) -> Sequence[str]:
        """Ids of the members, in the order in which they joined."""
        return tuple(self._members)

    def has_member(self, consumer: str) -> bool:
        """Return True if a consumer is a member."""
        return consumer in self._members

    def assignments(self, consumer: str) -> Mapping[str, Sequence[int]]:
        """Return the partitions of a member by stream, streams sorted; may be empty."""
        assigned = self._members[consumer].assignments
        return {stream: tuple(assigned[stream]) for stream in sorted(assigned)}

    def change_coordinator(self, coordinator: str, epoch: int) -> None:
        """Make another broker the coordinator."""
        self.coordinator = coordinator
        self.epoch = epoch

    def add(self, consumer: str, streams: Iterable[str], epoch: int) -> None:
        """Add a member and rebalance its streams."""
        member = self._members[consumer] = GroupMember(consumer, streams)
        for stream in sorted(member.streams):
            self._subscribers.setdefault(stream, {})[consumer] = member
            self._balance(stream)
        self.epoch = epoch

    def remove(self, consumer: str, epoch: int) -> None:
        """Remove a member and rebalance the streams of which it had partitions."""
        member = self._members.pop(consumer)
        for stream in sorted(member.streams):
            del self._subscribers[stream][consumer]
            if stream in member.assignments:
                self._balance(stream)
        self.epoch = epoch

    def drop_stream(self, stream: str, epoch: int) -> None:
        """Remove a deleted stream from its subscribers and rebalance their other streams.

        All members stay, even one without any stream left. Nothing happens if no member ever
        subscribed to the stream.
        """
        subscribers = self._subscribers.pop(stream, None)
        if subscribers is None:
            return
        affected: set[str] = set()
        for member in subscribers.values():
            member.streams.discard(stream)
            member.assignments.pop(stream, None)
            affected |= member.streams
        for other in sorted(affected):
            self._balance(other)
        self.epoch = epoch

    def _balance(self, stream: str) -> None:
        """Assign each partition to the subscriber with the fewest, ties to the lowest id.

        Partitions of other streams count, and are not moved.
        """
        subscribers = self._subscribers[stream]
        if not subscribers:
            return
        for member in subscribers.values():
            member.assignments.pop(stream, None)
        by_load = [(member.load, consumer) for consumer, member in subscribers.items()]
        heapq.heapify(by_load)
        for partition in range(self._partition_count(stream)):
            load, consumer = by_load[0]
            subscribers[consumer].assignments.setdefault(stream, []).append(partition)
            heapq.heapreplace(by_load, (load + 1, consumer))
