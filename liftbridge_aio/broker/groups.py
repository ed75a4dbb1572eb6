"""All consumer groups, as one broker knows them.

Pure. Texts and codes of refusals are those of Liftbridge 1.9.0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from .consumer_group import FIRST_EPOCH, ConsumerGroup
from .errors import BrokerError, Code
from .operations import (
    ChangeGroupCoordinator,
    CreateConsumerGroup,
    DeleteStream,
    JoinConsumerGroup,
    LeaveConsumerGroup,
    Operation,
)


class ConsumerGroups:
    """The registry of groups.

    What the checks let pass can be applied; the operations of one list, applied in order, make the
    same groups everywhere.
    """

    def __init__(self, server_id: str, partition_count: Callable[[str], int]) -> None:
        """Begin without groups.

        Args:
            server_id: id of the broker that asks.
            partition_count: how many partitions a stream has now, 0 if there is none of that name.
        """
        self.server_id = server_id
        self._partition_count = partition_count
        self._groups: dict[str, ConsumerGroup] = {}
        self._coordinator_load: Counter[str] = Counter()

    def group(self, name: str) -> ConsumerGroup | None:
        """Return a group, or None."""
        return self._groups.get(name)

    def existing(self, name: str) -> ConsumerGroup:
        """Return a group.

        Raises:
            BrokerError: there is no such group.
        """
        found = self._groups.get(name)
        if found is None:
            raise BrokerError(Code.NOT_FOUND, "consumer group does not exist")
        return found

    def coordinated(self) -> Iterable[ConsumerGroup]:
        """Go through the groups that this broker coordinates."""
        return (one for one in self._groups.values() if one.coordinator == self.server_id)

    def apply(self, operation: Operation, index: int) -> None:
        """Do what an operation says.

        Args:
            operation: what happens; the checks have let it pass. Most kinds change no group.
            index: the operation's place in the list, from now on the epoch of what it changes.
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
                    self._take_coordinator_load(group.coordinator)
            case ChangeGroupCoordinator():
                group = self._groups[operation.group]
                self._take_coordinator_load(group.coordinator)
                self._coordinator_load[operation.coordinator] += 1
                group.change_coordinator(operation.coordinator, index)
            case DeleteStream():
                for group in self._groups.values():
                    group.drop_stream(operation.stream, index)

    def check_join(self, group: str, consumer: str, streams: Iterable[str]) -> None:
        """Refuse a join, of a group that exists or is to be created by it.

        Raises:
            BrokerError: the consumer is a member already, or a stream does not exist.
        """
        found = self._groups.get(group)
        if found is not None and found.has_member(consumer):
            text = "consumer is already a member of the consumer group"
            raise BrokerError(Code.FAILED_PRECONDITION, text)
        if not all(map(self._partition_count, streams)):
            raise BrokerError(Code.FAILED_PRECONDITION, "stream does not exist")

    def check_leave(self, group: str, consumer: str) -> None:
        """Refuse a leave.

        Raises:
            BrokerError: there is no such group, or the consumer is no member of it.
        """
        self._member_of(group, consumer)

    def fetch_assignments(
        self, group: str, consumer: str, epoch: int
    ) -> Mapping[str, Sequence[int]]:
        """List the partitions of a member by stream, as only the coordinator does.

        Args:
            group: id of the group.
            consumer: id of the member.
            epoch: what the member takes for the epoch of the group.

        Raises:
            BrokerError: there is no such group, another broker coordinates it, it has another
                epoch, or the consumer is no member of it; looked for in this order.
        """
        found = self.existing(group)
        if found.coordinator != self.server_id:
            text = "broker is not the consumer group coordinator"
            raise BrokerError(Code.FAILED_PRECONDITION, text)
        if found.epoch != epoch:
            text = "client-provided group epoch differs from broker group epoch"
            raise BrokerError(Code.FAILED_PRECONDITION, text)
        return self._member_of(group, consumer).assignments(consumer)

    def check_report(
        self, group: str, consumer: str, coordinator: str, epoch: int
    ) -> ConsumerGroup:
        """Return the group whose coordinator a member says is dead.

        Args:
            group: id of the group.
            consumer: id of the member.
            coordinator: whom it says this of.
            epoch: what it takes for the epoch of the group.

        Raises:
            BrokerError: there is no such group, it has another coordinator or epoch, or the
                consumer is no member of it; looked for in this order.
        """
        found = self._groups.get(group)
        if found is None:
            text = f"No such consumer group {group}"
            raise BrokerError(Code.FAILED_PRECONDITION, text)
        if (found.coordinator, found.epoch) != (coordinator, epoch):
            text = (
                "Coordinator generation mismatch,"
                f" current coordinator: {found.coordinator} epoch: {found.epoch},"
                f" got coordinator: {coordinator} epoch: {epoch}"
            )
            raise BrokerError(Code.FAILED_PRECONDITION, text)
        if not found.has_member(consumer):
            text = f"Consumer {consumer} is not a member of consumer group {group}"
            raise BrokerError(Code.FAILED_PRECONDITION, text)
        return found

    def choose_coordinator(self, candidates: Iterable[str]) -> str:
        """Choose the broker that coordinates the fewest groups, the first of several.

        A real server chooses from all brokers of the cluster, in the order in which they came
        into it, whether they are alive or not.

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
            text = "consumer is not a member of the consumer group"
            raise BrokerError(Code.FAILED_PRECONDITION, text)
        return found

    def _take_coordinator_load(self, server_id: str) -> None:
        self._coordinator_load[server_id] -= 1
