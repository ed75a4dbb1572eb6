"""Who of a consumer group reads a partition: one subscriber at a time, told apart by epochs."""

from __future__ import annotations

from collections.abc import Callable

from .errors import BrokerError, Code


class GroupSubscriber:
    """A subscription in the name of a member."""

    def __init__(
        self, group: str, consumer: str, epoch: int, on_replaced: Callable[[], None]
    ) -> None:
        """Describe a subscription.

        Args:
            group: id of the group.
            consumer: id of the member.
            epoch: of the group, as the member knows it.
            on_replaced: called when another subscriber takes its place.
        """
        self.group = group
        self.consumer = consumer
        self.epoch = epoch
        self.is_replaced = False
        """Whether it has to end, which it does with status OK (W24)."""
        self._on_replaced = on_replaced

    def replace(self) -> None:
        """Tell it that another has taken its place."""
        self.is_replaced = True
        self._on_replaced()


class GroupSubscribers:
    """The subscribers of one partition; a partition that was paused and resumed has new ones."""

    def __init__(self) -> None:
        """Begin without subscribers."""
        self._subscribers: dict[str, GroupSubscriber] = {}

    def check(self, group: str, epoch: int) -> None:
        """Refuse a subscriber that knows less than the present one of its group.

        A real server compares with other subscribers only, never with the group itself: it does not
        look whether the group exists, has this epoch or has assigned the partition to the
        consumer. After a group was deleted and created again, whose epochs begin at 0, a
        subscriber that was left behind locks all others out.

        Raises:
            BrokerError: the present subscriber has a greater epoch.
        """
        present = self._subscribers.get(group)
        if present is not None and present.epoch > epoch:
            text = "Consumer is not currently assigned this partition"
            raise BrokerError(Code.FAILED_PRECONDITION, text)

    def add(self, subscriber: GroupSubscriber) -> None:
        """Let a subscriber that passed the check take the place of the present one.

        The positions of the subscription are checked before: one that is refused for them replaces
        nobody.
        """
        present = self._subscribers.get(subscriber.group)
        self._subscribers[subscriber.group] = subscriber
        if present is not None:
            present.replace()

    def remove(self, subscriber: GroupSubscriber) -> None:
        """Take out whoever is registered under the ids of a subscriber that has ended.

        As on a real server that may be a later subscriber of the same consumer, which goes on
        reading then but can no longer be replaced nor lock others out. The flaw is kept: a client
        has to cope with it.
        """
        present = self._subscribers.get(subscriber.group)
        if present is not None and present.consumer == subscriber.consumer:
            del self._subscribers[subscriber.group]
