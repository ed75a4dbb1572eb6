"""Recent events of clients, kept to explain what took too long."""

from __future__ import annotations

import time
from collections import deque
from typing import Final

from liftbridge_aio import Hook
from liftbridge_aio.telemetry import (
    CommitFailed,
    Connected,
    ConnectFailed,
    GroupChanged,
    Lost,
    PartitionBlocked,
    Resubscribed,
    Retried,
    SubscriptionEnded,
)

KEPT: Final = 20_000
Told = (
    CommitFailed
    | Connected
    | ConnectFailed
    | GroupChanged
    | Lost
    | PartitionBlocked
    | Resubscribed
    | Retried
    | SubscriptionEnded
)


class Watch(Hook):
    """Takes note of the events of one client that are not about single messages."""

    __slots__ = ("_client", "_events")

    def __init__(self, client: str, events: deque[tuple[float, str, Told]]) -> None:
        self._client = client
        self._events = events

    def _take(self, event: Told) -> None:
        self._events.append((time.monotonic(), self._client, event))

    def connected(self, event: Connected) -> None:
        self._take(event)

    def connect_failed(self, event: ConnectFailed) -> None:
        self._take(event)

    def lost(self, event: Lost) -> None:
        self._take(event)

    def resubscribed(self, event: Resubscribed) -> None:
        self._take(event)

    def subscription_ended(self, event: SubscriptionEnded) -> None:
        self._take(event)

    def commit_failed(self, event: CommitFailed) -> None:
        self._take(event)

    def group_changed(self, event: GroupChanged) -> None:
        self._take(event)

    def partition_blocked(self, event: PartitionBlocked) -> None:
        self._take(event)

    def retried(self, event: Retried) -> None:
        self._take(event)
