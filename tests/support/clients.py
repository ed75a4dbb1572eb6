"""Helpers of the tests that use the client: reading to the end, waiting, watching."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator
from typing import Final

from liftbridge_aio import Client, Hook, Message, StartAt, StopAt
from liftbridge_aio._subscribe.merged_subscription import MergedSubscription
from liftbridge_aio._subscribe.subscription import Subscription
from liftbridge_aio.telemetry import (
    Connected,
    Lost,
    MetadataRefreshed,
    PublishFailed,
    Subscribed,
    SubscriptionEnded,
)
from support.raw import BOUND, eventually

EARLIEST: Final = StartAt.earliest()
LATEST: Final = StopAt.latest()


async def read_out(client: Client, stream: str, partition: int = 0) -> list[Message]:
    """All messages of a partition as it is now."""
    async with asyncio.timeout(BOUND):
        return [
            message
            async for message in client.subscribe(
                stream, partition=partition, start=EARLIEST, stop=LATEST
            )
        ]


async def stored(client: Client, stream: str, count: int, partition: int = 0) -> list[bytes]:
    """The values of a partition, once there are so many."""

    async def enough() -> bool:
        info = await client.fetch_partition_metadata(stream, partition)
        return info.high_watermark >= count - 1

    await eventually(enough)
    return [message.value for message in await read_out(client, stream, partition)]


async def take(subscription: AsyncIterator[Message], count: int) -> list[Message]:
    """So many messages."""
    async with asyncio.timeout(BOUND):
        return [await anext(subscription) for _ in range(count)]


async def rest(subscription: AsyncIterable[Message]) -> list[Message]:
    """Return all remaining messages of a subscription that has an end."""
    async with asyncio.timeout(BOUND):
        return [message async for message in subscription]


def values(messages: list[Message]) -> list[bytes]:
    return [message.value for message in messages]


def offsets(messages: list[Message]) -> list[int]:
    return [message.offset for message in messages]


async def all_here(subscription: Subscription | MergedSubscription, count: int) -> None:
    """Wait until so many messages wait to be read."""
    await eventually(lambda: subscription.statistics().buffered >= count)


class Delivered(Hook):
    """A hook that keeps the messages that were delivered."""

    def __init__(self) -> None:
        self.messages: list[Message] = []

    def delivered(self, message: Message) -> None:
        self.messages.append(message)


class Watcher(Hook):
    """A hook that keeps all events."""

    def __init__(self) -> None:
        self.links: list[Connected] = []
        self.lost_links: list[Lost] = []
        self.subscriptions: list[Subscribed] = []
        self.ends: list[SubscriptionEnded] = []
        self.failures: list[PublishFailed] = []
        self.refreshed: list[MetadataRefreshed] = []

    def connected(self, event: Connected) -> None:
        self.links.append(event)

    def lost(self, event: Lost) -> None:
        self.lost_links.append(event)

    def subscribed(self, event: Subscribed) -> None:
        self.subscriptions.append(event)

    def subscription_ended(self, event: SubscriptionEnded) -> None:
        self.ends.append(event)

    def publish_failed(self, event: PublishFailed) -> None:
        self.failures.append(event)

    def metadata_refreshed(self, event: MetadataRefreshed) -> None:
        self.refreshed.append(event)
