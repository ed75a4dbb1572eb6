"""The states of a member of a consumer group and their transitions."""

from __future__ import annotations

import enum
from typing import Final


class GroupState(enum.Enum):
    """The state of a member of a consumer group."""

    NEW = "new"
    JOINING = "joining"
    SYNCING = "syncing"
    """A member, but the current epoch of the group is unknown."""
    STABLE = "stable"
    """A member with the assignment of the newest known epoch."""
    COORDINATOR_LOST = "coordinator lost"
    """The coordinator does not answer and has been, or will be, reported."""
    REJOINING = "rejoining"
    """The member was expelled, or the group was deleted, and it joins again."""
    LEAVING = "leaving"
    LEFT = "left"
    FAILED = "failed"


MOVES: Final = {
    GroupState.NEW: {GroupState.JOINING, GroupState.LEFT},
    GroupState.JOINING: {GroupState.SYNCING, GroupState.LEAVING, GroupState.FAILED},
    GroupState.SYNCING: {
        GroupState.STABLE,
        GroupState.COORDINATOR_LOST,
        GroupState.REJOINING,
        GroupState.LEAVING,
        GroupState.FAILED,
    },
    GroupState.STABLE: {
        GroupState.SYNCING,
        GroupState.COORDINATOR_LOST,
        GroupState.REJOINING,
        GroupState.LEAVING,
        GroupState.FAILED,
    },
    GroupState.COORDINATOR_LOST: {
        GroupState.SYNCING,
        GroupState.STABLE,
        GroupState.REJOINING,
        GroupState.LEAVING,
        GroupState.FAILED,
    },
    GroupState.REJOINING: {GroupState.SYNCING, GroupState.LEAVING, GroupState.FAILED},
    GroupState.LEAVING: {GroupState.LEFT},
    GroupState.LEFT: set[GroupState](),
    GroupState.FAILED: set[GroupState](),
}
"""The allowed state transitions."""

OVER: Final = frozenset({GroupState.LEFT, GroupState.FAILED})
"""The final states."""
