"""One consumer group: its members, and which of them reads which partition.

Pure. Who gets what is decided exactly as Liftbridge 1.9.0 does it, so every broker that applies
the same operations comes to the same assignments.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence

FIRST_EPOCH = 0
"""The epoch of a new group; later ones are indexes of operations."""


class Member:
    """A consumer in a group."""

    def __init__(self, consumer: str, streams: Iterable[str]) -> None:
        """Begin without partitions.

        Args:
            consumer: id of the consumer.
            streams: what it wants to read.
        """
        self.consumer = consumer
        self.streams = set(streams)
        self.assignments: dict[str, list[int]] = {}

    @property
    def load(self) -> int:
        """How many partitions it has, over all streams."""
        return sum(map(len, self.assignments.values()))


class ConsumerGroup:
    """A consumer group; its epoch changes with its coordinator, members and streams."""

    def __init__(self, name: str, coordinator: str, partition_count: Callable[[str], int]) -> None:
        """Begin without members.

        Args:
            name: id of the group.
            coordinator: id of the broker that watches over the members.
            partition_count: how many partitions a stream has, 0 if there is none of that name.
        """
        self.name = name
        self.coordinator = coordinator
        self.epoch = FIRST_EPOCH
        self._partition_count = partition_count
        self._members: dict[str, Member] = {}
        # A stream stays when its last subscriber leaves, as on a real server.
        self._subscribers: dict[str, dict[str, Member]] = {}

    @property
    def members(self) -> Sequence[str]:
        """Ids of the members, first joined first."""
        return tuple(self._members)

    def has_member(self, consumer: str) -> bool:
        """Tell whether a consumer belongs to the group."""
        return consumer in self._members

    def assignments(self, consumer: str) -> Mapping[str, Sequence[int]]:
        """List the partitions of a member by stream, streams in order; often there are none."""
        assigned = self._members[consumer].assignments
        return {stream: tuple(assigned[stream]) for stream in sorted(assigned)}

    def change_coordinator(self, coordinator: str, epoch: int) -> None:
        """Have another broker watch over the members."""
        self.coordinator = coordinator
        self.epoch = epoch

    def add(self, consumer: str, streams: Iterable[str], epoch: int) -> None:
        """Add a member and share out its streams anew."""
        member = self._members[consumer] = Member(consumer, streams)
        for stream in sorted(member.streams):
            self._subscribers.setdefault(stream, {})[consumer] = member
            self._balance(stream)
        self.epoch = epoch

    def remove(self, consumer: str, epoch: int) -> None:
        """Remove a member and share out the streams that it read partitions of."""
        member = self._members.pop(consumer)
        for stream in sorted(member.streams):
            del self._subscribers[stream][consumer]
            if stream in member.assignments:
                self._balance(stream)
        self.epoch = epoch

    def drop_stream(self, stream: str, epoch: int) -> None:
        """Take a deleted stream from its subscribers and share out what else they read.

        The members stay, also one that is left without a stream. A stream that no member ever
        wanted changes nothing.
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
        """Give each partition to the subscriber with the fewest, ties to the lesser id.

        What the subscribers read of other streams counts and stays where it is.
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
