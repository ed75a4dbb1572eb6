"""The states of a member of a consumer group, and which may follow which."""

from __future__ import annotations

import enum
from typing import Final


class GroupState(enum.Enum):
    """Life of a member of a consumer group."""

    NEW = "new"
    JOINING = "joining"
    SYNCING = "syncing"
    """A member, but the epoch of the group is not known, or not known any more."""
    STABLE = "stable"
    """Its assignment is that of the newest known epoch."""
    COORDINATOR_LOST = "coordinator lost"
    """The coordinator is silent and was, or is to be, reported."""
    REJOINING = "rejoining"
    """It was expelled, or the group was deleted."""
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
"""Which state may follow which."""

OVER: Final = frozenset({GroupState.LEFT, GroupState.FAILED})
"""A member no more."""
