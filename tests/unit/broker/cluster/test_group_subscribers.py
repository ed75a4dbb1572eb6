"""One subscriber per group and partition."""

from __future__ import annotations

import pytest

from liftbridge_aio.broker.cluster.group_subscribers import (
    GroupSubscriber,
    GroupSubscribers,
)
from liftbridge_aio.broker.errors import BrokerError, Code


class Subscribers:
    """The subscribers of one partition, and those that were told of their replacement."""

    def __init__(self) -> None:
        self.partition = GroupSubscribers()
        self.told: list[str] = []

    def subscribe(self, consumer: str, epoch: int, group: str = "g") -> GroupSubscriber:
        self.partition.check(group, epoch)
        subscriber = GroupSubscriber(group, consumer, epoch, lambda: self.told.append(consumer))
        self.partition.add(subscriber)
        return subscriber


@pytest.mark.parametrize("epoch", [5, 6])
def test_the_same_or_a_greater_epoch_replaces(epoch: int) -> None:
    subscribers = Subscribers()
    first = subscribers.subscribe("a", 5)
    second = subscribers.subscribe("b", epoch)
    assert (first.is_replaced, second.is_replaced) == (True, False)
    assert subscribers.told == ["a"]


def test_a_lesser_epoch_is_refused_until_the_current_one_ends() -> None:
    subscribers = Subscribers()
    zombie = subscribers.subscribe("a", 5)
    with pytest.raises(BrokerError) as error:
        subscribers.subscribe("b", 0)
    assert error.value.code is Code.FAILED_PRECONDITION
    assert error.value.text == "Consumer is not currently assigned this partition"
    assert not zombie.is_replaced

    subscribers.partition.remove(zombie)
    subscribers.subscribe("b", 0)
    assert subscribers.told == []


def test_groups_do_not_disturb_each_other() -> None:
    subscribers = Subscribers()
    one = subscribers.subscribe("a", 5)
    other = subscribers.subscribe("a", 0, group="h")
    subscribers.partition.remove(other)
    assert not one.is_replaced
    with pytest.raises(BrokerError):
        subscribers.subscribe("b", 4)


def test_a_replaced_subscriber_leaves_another_consumer_registered() -> None:
    subscribers = Subscribers()
    first = subscribers.subscribe("a", 5)
    subscribers.subscribe("b", 5)
    subscribers.partition.remove(first)
    with pytest.raises(BrokerError):
        subscribers.subscribe("c", 4)


def test_a_replaced_subscriber_unregisters_the_same_consumer() -> None:
    subscribers = Subscribers()
    first = subscribers.subscribe("a", 5)
    second = subscribers.subscribe("a", 5)
    subscribers.partition.remove(first)
    subscribers.subscribe("c", 4)
    assert not second.is_replaced
