"""The one subscriber that each consumer group may have on a partition, fenced by epochs."""

from __future__ import annotations

from collections.abc import Callable

from liftbridge_aio.broker.errors import BrokerError, Code


class GroupSubscriber:
    """A subscription of a member."""

    def __init__(
        self, group: str, consumer: str, epoch: int, on_replaced: Callable[[], None]
    ) -> None:
        """Create a subscription.

        Args:
            group: id of the group.
            consumer: id of the member.
            epoch: epoch of the group, as the member knows it.
            on_replaced: called when another subscriber takes its place.
        """
        self.group = group
        self.consumer = consumer
        self.epoch = epoch
        self.is_replaced = False
        """True if it has to end, which it does with status OK."""
        self._on_replaced = on_replaced

    def replace(self) -> None:
        """End it, as another has taken its place."""
        self.is_replaced = True
        self._on_replaced()


class GroupSubscribers:
    """The subscribers of one partition; resuming a partition clears them."""

    def __init__(self) -> None:
        """Create an empty registry."""
        self._subscribers: dict[str, GroupSubscriber] = {}

    def check(self, group: str, epoch: int) -> None:
        """Refuse a subscriber with an older epoch than the current one of its group.

        As on a real server only subscribers are compared: the group need not exist, have this epoch
        or have assigned the partition to the consumer. After a group was deleted and created again,
        whose epochs begin at 0, a subscriber of the old group locks all others out.

        Raises:
            BrokerError: the current subscriber has a greater epoch.
        """
        current = self._subscribers.get(group)
        if current is not None and current.epoch > epoch:
            raise BrokerError(
                Code.FAILED_PRECONDITION, "Consumer is not currently assigned this partition"
            )

    def add(self, subscriber: GroupSubscriber) -> None:
        """Replace the current subscriber of the group, after `check`.

        The positions of the subscription are checked before, so a refused one replaces no other.
        """
        current = self._subscribers.get(subscriber.group)
        self._subscribers[subscriber.group] = subscriber
        if current is not None:
            current.replace()

    def remove(self, subscriber: GroupSubscriber) -> None:
        """Remove the registration under the ids of a subscriber that has ended.

        As on a real server that may be a later subscriber of the same consumer, which then reads on
        but can no longer be replaced nor lock others out. Clients must handle this flaw.
        """
        current = self._subscribers.get(subscriber.group)
        if current is not None and current.consumer == subscriber.consumer:
            del self._subscribers[subscriber.group]
