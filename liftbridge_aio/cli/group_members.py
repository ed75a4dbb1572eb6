"""Who is in which consumer group, from the events of the activity stream. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


class GroupMembers:
    """Takes events of joins and leaves, and keeps who is left.

    An event may come again, under the same id; ids rise.
    """

    def __init__(self) -> None:
        self._groups: dict[str, dict[str, tuple[str, ...]]] = {}
        self._last_id = -1

    def joined(self, event: int, group: str, consumer: str, streams: Iterable[str]) -> None:
        """Take note of a join, or of the one with which a group began."""
        if self._is_new(event):
            self._groups.setdefault(group, {})[consumer] = tuple(streams)

    def left(self, event: int, group: str, consumer: str) -> None:
        """Take note of a leave or an expulsion."""
        if self._is_new(event):
            self._groups.setdefault(group, {}).pop(consumer, None)

    @property
    def groups(self) -> list[str]:
        """Every group that was ever heard of, sorted."""
        return sorted(self._groups)

    def of(self, group: str) -> Mapping[str, tuple[str, ...]]:
        """The members of a group, and the streams that each asked for."""
        return self._groups.get(group, {})

    def _is_new(self, event: int) -> bool:
        if event <= self._last_id:
            return False
        self._last_id = event
        return True
