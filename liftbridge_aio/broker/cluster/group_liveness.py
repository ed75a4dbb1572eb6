"""The heartbeat deadlines of group members, as their coordinator tracks them.

Pure: the time comes in as an argument, in nanoseconds of any one clock.
"""

from __future__ import annotations

from liftbridge_aio.broker.storage.core.operations import (
    ChangeGroupCoordinator,
    CreateConsumerGroup,
    JoinConsumerGroup,
    LeaveConsumerGroup,
    Operation,
)

from .groups import ConsumerGroups


class GroupLiveness:
    """The deadlines of the members whose coordinator this broker is.

    Joining, a successful fetch of assignments and a new coordinator reset a member's deadline.
    """

    def __init__(self, timeout: int) -> None:
        """Create an empty table of deadlines.

        Args:
            timeout: nanoseconds without a heartbeat after which a member is expelled
                (`groups.consumer.timeout`).
        """
        self._timeout = timeout
        self._deadlines: dict[tuple[str, str], int] = {}

    def apply(self, groups: ConsumerGroups, operation: Operation, now: int) -> None:
        """Add or remove deadlines, after `groups` has applied an operation."""
        match operation:
            case CreateConsumerGroup() | JoinConsumerGroup():
                group = groups.group(operation.group)
                if group is not None and group.coordinator == groups.server_id:
                    self.record_heartbeat(operation.group, operation.consumer, now)
            case LeaveConsumerGroup():
                self._deadlines.pop((operation.group, operation.consumer), None)
            case ChangeGroupCoordinator():
                self.reset(groups, now, operation.group)

    def reset(self, groups: ConsumerGroups, now: int, only: str | None = None) -> None:
        """Reset the deadlines of the members of all groups, or of one, as if they joined now.

        A broker that starts calls this once it has applied all operations that it missed.
        """
        kept = {} if only is None else self._deadlines
        self._deadlines = {key: at for key, at in kept.items() if key[0] != only}
        for group in groups.coordinated():
            if only in {None, group.name}:
                for consumer in group.members:
                    self.record_heartbeat(group.name, consumer, now)

    def record_heartbeat(self, group: str, consumer: str, now: int) -> None:
        """Reset the deadline of a member."""
        self._deadlines[group, consumer] = now + self._timeout

    def expired(self, now: int) -> list[tuple[str, str]]:
        """Return the members to expel, as (group, consumer), in the order of their deadlines.

        A member that cannot be expelled now is returned again after another timeout.
        """
        late = sorted((at, key) for key, at in self._deadlines.items() if at <= now)
        for _, (group, consumer) in late:
            self.record_heartbeat(group, consumer, now)
        return [key for _, key in late]

    def next_deadline(self) -> int | None:
        """Return the earliest deadline, None without members."""
        return min(self._deadlines.values(), default=None)
