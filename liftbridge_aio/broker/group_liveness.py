"""How long a coordinator waits for the members of its groups.

Pure: the time comes in as an argument, in nanoseconds of any one clock.
"""

from __future__ import annotations

from .groups import ConsumerGroups
from .operations import (
    ChangeGroupCoordinator,
    CreateConsumerGroup,
    JoinConsumerGroup,
    LeaveConsumerGroup,
    Operation,
)


class GroupLiveness:
    """The deadlines of the members whose coordinator this broker is.

    Only joining, a successful fetch of assignments and a new coordinator give a member time.
    """

    def __init__(self, timeout: int) -> None:
        """Begin without members.

        Args:
            timeout: nanoseconds that a member may be silent (`groups.consumer.timeout`).
        """
        self._timeout = timeout
        self._deadlines: dict[tuple[str, str], int] = {}

    def follow(self, groups: ConsumerGroups, operation: Operation, now: int) -> None:
        """Begin or cease to watch members, after `groups` has applied an operation."""
        match operation:
            case CreateConsumerGroup() | JoinConsumerGroup():
                group = groups.group(operation.group)
                if group is not None and group.coordinator == groups.server_id:
                    self.contact(operation.group, operation.consumer, now)
            case LeaveConsumerGroup():
                self._deadlines.pop((operation.group, operation.consumer), None)
            case ChangeGroupCoordinator():
                self.restart(groups, now, operation.group)

    def restart(self, groups: ConsumerGroups, now: int, only: str | None = None) -> None:
        """Give the members of all groups, or of one, time as if they had joined now.

        A broker that starts does so when it has applied all that it had missed, and not before.
        """
        kept = {} if only is None else self._deadlines
        self._deadlines = {key: at for key, at in kept.items() if key[0] != only}
        for group in groups.coordinated():
            if only in {None, group.name}:
                for consumer in group.members:
                    self.contact(group.name, consumer, now)

    def contact(self, group: str, consumer: str, now: int) -> None:
        """Note a sign of life of a member: it has its whole time again."""
        self._deadlines[group, consumer] = now + self._timeout

    def expired(self, now: int) -> list[tuple[str, str]]:
        """List the members, as group and consumer, that are to be expelled, in order of time.

        One that cannot be expelled now will be in the list again when another timeout is over.
        """
        late = sorted((at, key) for key, at in self._deadlines.items() if at <= now)
        for _, (group, consumer) in late:
            self.contact(group, consumer, now)
        return [key for _, key in late]

    def next_deadline(self) -> int | None:
        """Return when the next member will have been silent too long, None without members."""
        return min(self._deadlines.values(), default=None)
