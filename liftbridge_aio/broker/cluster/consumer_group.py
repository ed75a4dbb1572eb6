"""One consumer group: its members, and the partitions assigned to each.

Pure. Partitions are assigned exactly as by Liftbridge 1.9.0, so all nodes that apply the same
operations compute the same assignments.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, TypeVar

T = TypeVar("T")

MANY: Final = 1000
"""Changes that are kept at most, however long nobody asks for assignments."""

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
        self.load = 0
        """Number of its partitions, over all streams."""

    def withdraw(self, stream: str) -> None:
        """Remove its partitions of a stream."""
        self.load -= len(self.assignments.pop(stream, ()))


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
        self._streams: set[str] = set()
        """The streams of its members, and of former ones, but for deleted streams."""
        self._pending: list[Callable[[], None]] = []
        """The changes that `assignments` has yet to apply, of what is below.

        Only a coordinator is asked for assignments. All other nodes only keep the changes: a join
        of a large group would take each of a hundred nodes as long as the coordinator.
        """
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
        self._apply_pending()
        assigned = self._members[consumer].assignments
        return {stream: tuple(assigned[stream]) for stream in sorted(assigned)}

    def _apply_pending(self) -> None:
        pending, self._pending = self._pending, []
        for change in pending:
            change()

    def change_coordinator(self, coordinator: str, epoch: int) -> None:
        """Make another broker the coordinator."""
        self.coordinator = coordinator
        self.epoch = epoch

    def add(self, consumer: str, streams: Iterable[str], epoch: int) -> None:
        """Add a member and rebalance its streams."""
        member = self._members[consumer] = GroupMember(consumer, streams)
        self._streams |= member.streams
        self._change(self._add, member, epoch)

    def _add(self, member: GroupMember, counts: Mapping[str, int]) -> None:
        for stream in sorted(member.streams):
            self._subscribers.setdefault(stream, {})[member.consumer] = member
            self._balance(stream, counts[stream])

    def remove(self, consumer: str, epoch: int) -> None:
        """Remove a member and rebalance the streams of which it had partitions."""
        self._change(self._remove, self._members.pop(consumer), epoch)

    def _remove(self, member: GroupMember, counts: Mapping[str, int]) -> None:
        for stream in sorted(member.streams):
            del self._subscribers[stream][member.consumer]
            if stream in member.assignments:
                self._balance(stream, counts[stream])

    def drop_stream(self, stream: str, epoch: int) -> None:
        """Remove a deleted stream from its subscribers and rebalance their other streams.

        All members stay, even one without any stream left. Nothing happens if no member ever
        subscribed to the stream.
        """
        if stream in self._streams:
            self._streams.discard(stream)
            self._change(self._drop, stream, epoch)

    def _drop(self, stream: str, counts: Mapping[str, int]) -> None:
        affected: set[str] = set()
        for member in self._subscribers.pop(stream).values():
            member.streams.discard(stream)
            member.withdraw(stream)
            affected |= member.streams
        for other in sorted(affected):
            self._balance(other, counts[other])

    def _change(self, apply: Callable[[T, Mapping[str, int]], None], what: T, epoch: int) -> None:
        """Keep a change for `assignments`, with the numbers of partitions that streams have now."""
        counts = {stream: self._partition_count(stream) for stream in self._streams}
        self._pending.append(partial(apply, what, counts))
        if len(self._pending) > MANY:
            self._apply_pending()
        self.epoch = epoch

    def _balance(self, stream: str, count: int) -> None:
        """Assign each partition to the subscriber with the fewest, ties to the lowest id.

        Partitions of other streams count, and are not moved.
        """
        subscribers = self._subscribers[stream]
        if not subscribers:
            return
        for member in subscribers.values():
            member.withdraw(stream)
        by_load = [(member.load, consumer) for consumer, member in subscribers.items()]
        heapq.heapify(by_load)
        for partition in range(count):
            load, consumer = by_load[0]
            member = subscribers[consumer]
            member.assignments.setdefault(stream, []).append(partition)
            member.load += 1
            heapq.heapreplace(by_load, (load + 1, consumer))
