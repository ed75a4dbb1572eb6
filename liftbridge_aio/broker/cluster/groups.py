"""All consumer groups, as one node knows them.

Pure. Codes and texts of refusals are those of Liftbridge 1.9.0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from liftbridge_aio.broker.errors import BrokerError, Code
from liftbridge_aio.broker.storage.core.operations import (
    ChangeGroupCoordinator,
    CreateConsumerGroup,
    DeleteStream,
    JoinConsumerGroup,
    LeaveConsumerGroup,
    Operation,
)

from .consumer_group import FIRST_EPOCH, ConsumerGroup


class ConsumerGroups:
    """The registry of groups.

    An operation that passed the checks can be applied; nodes that apply the same operations in
    order have the same groups.
    """

    def __init__(self, server_id: str, partition_count: Callable[[str], int]) -> None:
        """Create an empty registry.

        Args:
            server_id: id of this broker.
            partition_count: returns the number of partitions of a stream, 0 if it does not exist.
        """
        self.server_id = server_id
        self._partition_count = partition_count
        self._groups: dict[str, ConsumerGroup] = {}
        self._visible: dict[str, ConsumerGroup] = self._groups
        """The groups that requests see: none between `forget` and `remember`."""
        self._coordinator_load: Counter[str] = Counter()

    def group(self, name: str) -> ConsumerGroup | None:
        """Return a group, or None."""
        return self._visible.get(name)

    @property
    def is_forgetful(self) -> bool:
        """True between `forget` and `remember`."""
        return self._visible is not self._groups

    def forget(self) -> None:
        """Answer as if there were no groups, until `remember`."""
        self._visible = {}

    def remember(self) -> None:
        """Undo `forget`."""
        self._visible = self._groups

    def existing(self, name: str) -> ConsumerGroup:
        """Return a group.

        Raises:
            BrokerError: there is no such group.
        """
        found = self._visible.get(name)
        if found is None:
            raise BrokerError(Code.NOT_FOUND, "consumer group does not exist")
        return found

    def coordinated(self) -> Iterable[ConsumerGroup]:
        """Iterate over the groups that this broker coordinates."""
        return (one for one in self._groups.values() if one.coordinator == self.server_id)

    def apply(self, operation: Operation, index: int) -> None:
        """Apply an operation.

        Args:
            operation: one that passed the checks; most kinds change no group.
            index: the operation's index, which becomes the epoch of the group that it changes.
        """
        match operation:
            case CreateConsumerGroup():
                group = ConsumerGroup(operation.group, operation.coordinator, self._partition_count)
                group.add(operation.consumer, operation.streams, FIRST_EPOCH)
                self._groups[group.name] = group
                self._coordinator_load[group.coordinator] += 1
            case JoinConsumerGroup():
                self._groups[operation.group].add(operation.consumer, operation.streams, index)
            case LeaveConsumerGroup():
                group = self._groups[operation.group]
                group.remove(operation.consumer, index)
                if not group.members:
                    del self._groups[group.name]
                    self._decrease_coordinator_load(group.coordinator)
            case ChangeGroupCoordinator():
                group = self._groups[operation.group]
                self._decrease_coordinator_load(group.coordinator)
                self._coordinator_load[operation.coordinator] += 1
                group.change_coordinator(operation.coordinator, index)
            case DeleteStream():
                for group in self._groups.values():
                    group.drop_stream(operation.stream, index)

    def check_join(self, group: str, consumer: str, streams: Iterable[str]) -> None:
        """Check a join, whether the group exists or is created by it.

        Raises:
            BrokerError: the consumer is a member already, or a stream does not exist.
        """
        found = self._groups.get(group)
        if found is not None and found.has_member(consumer):
            raise BrokerError(
                Code.FAILED_PRECONDITION, "consumer is already a member of the consumer group"
            )
        if not all(map(self._partition_count, streams)):
            raise BrokerError(Code.FAILED_PRECONDITION, "stream does not exist")

    def check_leave(self, group: str, consumer: str) -> None:
        """Check a leave.

        Raises:
            BrokerError: there is no such group, or the consumer is no member of it.
        """
        self._member_of(group, consumer)

    def fetch_assignments(
        self, group: str, consumer: str, epoch: int
    ) -> Mapping[str, Sequence[int]]:
        """Return the partitions of a member by stream; only the coordinator does.

        Args:
            group: id of the group.
            consumer: id of the member.
            epoch: epoch of the group, as the member knows it.

        Raises:
            BrokerError: there is no such group, another broker coordinates it, it has another
                epoch, or the consumer is no member of it; checked in this order.
        """
        found = self.existing(group)
        if found.coordinator != self.server_id:
            raise BrokerError(
                Code.FAILED_PRECONDITION, "broker is not the consumer group coordinator"
            )
        if found.epoch != epoch:
            raise BrokerError(
                Code.FAILED_PRECONDITION,
                "client-provided group epoch differs from broker group epoch",
            )
        return self._member_of(group, consumer).assignments(consumer)

    def check_report(
        self, group: str, consumer: str, coordinator: str, epoch: int
    ) -> ConsumerGroup:
        """Check a report of a dead coordinator, and return the group.

        Args:
            group: id of the group.
            consumer: id of the member.
            coordinator: id of the coordinator that it reports.
            epoch: epoch of the group, as the member knows it.

        Raises:
            BrokerError: there is no such group, it has another coordinator or epoch, or the
                consumer is no member of it; checked in this order.
        """
        found = self._groups.get(group)
        if found is None:
            raise BrokerError(Code.FAILED_PRECONDITION, f"No such consumer group {group}")
        if (found.coordinator, found.epoch) != (coordinator, epoch):
            raise BrokerError(
                Code.FAILED_PRECONDITION,
                "Coordinator generation mismatch,"
                f" current coordinator: {found.coordinator} epoch: {found.epoch},"
                f" got coordinator: {coordinator} epoch: {epoch}",
            )
        if not found.has_member(consumer):
            raise BrokerError(
                Code.FAILED_PRECONDITION,
                f"Consumer {consumer} is not a member of consumer group {group}",
            )
        return found

    def choose_coordinator(self, candidates: Iterable[str]) -> str:
        """Choose the broker that coordinates the fewest groups, the first of several.

        A real server chooses from all brokers of the cluster, in the order in which they joined
        it, whether they are alive or not.

        Raises:
            BrokerError: there are no candidates.
        """
        chosen = min(candidates, key=self._coordinator_load.__getitem__, default=None)
        if chosen is None:
            raise BrokerError(Code.FAILED_PRECONDITION, "No group coordinator candidates")
        return chosen

    def _member_of(self, group: str, consumer: str) -> ConsumerGroup:
        found = self.existing(group)
        if not found.has_member(consumer):
            raise BrokerError(
                Code.FAILED_PRECONDITION, "consumer is not a member of the consumer group"
            )
        return found

    def _decrease_coordinator_load(self, server_id: str) -> None:
        self._coordinator_load[server_id] -= 1
