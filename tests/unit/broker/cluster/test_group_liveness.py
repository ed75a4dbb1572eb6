"""Deadlines of group members at their coordinator."""

from __future__ import annotations

from typing import Final

from liftbridge_aio.broker.cluster.group_liveness import GroupLiveness
from liftbridge_aio.broker.cluster.groups import ConsumerGroups
from liftbridge_aio.broker.storage.core.operations import (
    ChangeGroupCoordinator,
    CreateConsumerGroup,
    JoinConsumerGroup,
    Operation,
)

TIMEOUT: Final = 100


class Coordinator:
    """A broker that applies operations and tracks members."""

    def __init__(self) -> None:
        self.groups = ConsumerGroups("me", lambda _stream: 1)
        self.liveness = GroupLiveness(TIMEOUT)
        self._index = 0

    def apply(self, operation: Operation, now: int) -> None:
        self._index += 1
        self.groups.apply(operation, self._index)
        self.liveness.apply(self.groups, operation, now)

    def create(self, consumer: str, now: int, group: str = "g", coordinator: str = "me") -> None:
        operation = CreateConsumerGroup(
            group=group, coordinator=coordinator, consumer=consumer, streams=("s",)
        )
        self.apply(operation, now)

    def join(self, consumer: str, now: int) -> None:
        self.apply(JoinConsumerGroup(group="g", consumer=consumer, streams=("s",)), now)


def test_expired_members_are_listed_in_order_of_their_deadlines() -> None:
    broker = Coordinator()
    broker.create("b", 0)
    broker.join("a", 1)
    assert broker.liveness.expired(200) == [("g", "b"), ("g", "a")]


def test_a_member_that_was_not_expelled_expires_again() -> None:
    broker = Coordinator()
    broker.create("a", 0)
    assert broker.liveness.expired(150) == [("g", "a")]
    assert broker.liveness.expired(249) == []
    assert broker.liveness.expired(250) == [("g", "a")]


def test_only_the_coordinator_tracks_members_and_a_new_one_resets_them() -> None:
    broker = Coordinator()
    broker.create("a", 0, coordinator="other")
    broker.join("b", 10)
    assert broker.liveness.next_deadline() is None

    broker.apply(ChangeGroupCoordinator(group="g", coordinator="me"), 500)
    assert broker.liveness.expired(599) == []
    assert broker.liveness.expired(600) == [("g", "a"), ("g", "b")]

    broker.apply(ChangeGroupCoordinator(group="g", coordinator="other"), 700)
    assert broker.liveness.next_deadline() is None


def test_a_change_of_coordinator_leaves_other_groups_alone() -> None:
    broker = Coordinator()
    broker.create("a", 0)
    broker.create("x", 20, group="h")
    broker.apply(ChangeGroupCoordinator(group="g", coordinator="other"), 50)
    assert broker.liveness.expired(120) == [("h", "x")]
