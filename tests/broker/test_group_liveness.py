"""Deadlines of group members at their coordinator."""

from __future__ import annotations

from typing import Final

from liftbridge_aio.broker.group_liveness import GroupLiveness
from liftbridge_aio.broker.groups import ConsumerGroups
from liftbridge_aio.broker.operations import (
    ChangeGroupCoordinator,
    CreateConsumerGroup,
    JoinConsumerGroup,
    LeaveConsumerGroup,
    Operation,
)

TIMEOUT: Final = 100


class Coordinator:
    """A broker that applies operations and watches over members."""

    def __init__(self) -> None:
        self.groups = ConsumerGroups("me", lambda _stream: 1)
        self.liveness = GroupLiveness(TIMEOUT)
        self._index = 0

    def apply(self, operation: Operation, now: int) -> None:
        self._index += 1
        self.groups.apply(operation, self._index)
        self.liveness.follow(self.groups, operation, now)

    def create(self, consumer: str, now: int, group: str = "g", coordinator: str = "me") -> None:
        operation = CreateConsumerGroup(
            group=group, coordinator=coordinator, consumer=consumer, streams=("s",)
        )
        self.apply(operation, now)

    def join(self, consumer: str, now: int) -> None:
        self.apply(JoinConsumerGroup(group="g", consumer=consumer, streams=("s",)), now)


def test_a_silent_member_expires_and_contact_gives_the_whole_time_again() -> None:
    broker = Coordinator()
    broker.create("a", 0)
    broker.join("b", 30)
    broker.liveness.contact("g", "a", 50)

    assert broker.liveness.next_deadline() == 130
    assert broker.liveness.expired(129) == []
    assert broker.liveness.expired(130) == [("g", "b")]
    assert broker.liveness.next_deadline() == 150


def test_all_that_are_late_are_named_in_order_of_time() -> None:
    broker = Coordinator()
    broker.create("b", 0)
    broker.join("a", 1)
    assert broker.liveness.expired(200) == [("g", "b"), ("g", "a")]


def test_who_could_not_be_expelled_is_named_again_a_timeout_later() -> None:
    broker = Coordinator()
    broker.create("a", 0)
    assert broker.liveness.expired(150) == [("g", "a")]
    assert broker.liveness.expired(249) == []
    assert broker.liveness.expired(250) == [("g", "a")]


def test_who_left_is_not_waited_for() -> None:
    broker = Coordinator()
    broker.create("a", 0)
    broker.apply(LeaveConsumerGroup(group="g", consumer="a", expired=False), 10)
    assert broker.liveness.next_deadline() is None


def test_only_the_coordinator_watches_and_a_new_one_gives_time() -> None:
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


def test_a_broker_that_starts_again_gives_all_its_members_time() -> None:
    broker = Coordinator()
    broker.create("a", 0)
    broker.create("x", 0, group="h", coordinator="other")
    broker.liveness.contact("gone", "long ago", 0)

    broker.liveness.restart(broker.groups, 1_000)

    assert broker.liveness.expired(1_099) == []
    assert broker.liveness.expired(1_100) == [("g", "a")]
