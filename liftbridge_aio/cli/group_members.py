"""Who is in which consumer group, from the events of the activity stream. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from liftbridge_aio.activity_events import ActivityEvent, JoinGroupEvent, LeaveGroupEvent


class GroupMembers:
    """Takes events, in order, and keeps who is left of those that joined."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[str, tuple[str, ...]]] = {}

    def take(self, event: ActivityEvent) -> None:
        """Take note of an event."""
        match event:
            case JoinGroupEvent():
                self._groups.setdefault(event.group, {})[event.consumer] = event.streams
            case LeaveGroupEvent():
                self._groups.setdefault(event.group, {}).pop(event.consumer, None)

    @property
    def groups(self) -> list[str]:
        """Every group that was ever heard of, sorted."""
        return sorted(self._groups)

    def of(self, group: str) -> Mapping[str, tuple[str, ...]]:
        """The members of a group, and the streams that each asked for."""
        return self._groups.get(group, {})
