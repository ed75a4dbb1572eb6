"""Helpers of the tests that are members of consumer groups through the client."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from liftbridge_aio import Client, ConsumerGroup, Hook, Message, StartAt, StreamPartition
from liftbridge_aio.telemetry import (
    CommitFailed,
    GroupChanged,
    HandlerFailed,
    PartitionBlocked,
    Subscribed,
)
from support.raw import BOUND, eventually

EARLIEST: Final = StartAt.earliest()


class GroupWatcher(Hook):
    """Keeps what it is told of groups."""

    def __init__(self) -> None:
        self.subscriptions: list[StreamPartition] = []
        self.changes: list[GroupChanged] = []
        self.failures: list[CommitFailed] = []
        self.blocked: list[PartitionBlocked] = []
        self.failed_handlers: list[HandlerFailed] = []

    def subscribed(self, event: Subscribed) -> None:
        self.subscriptions.append(StreamPartition(event.stream, event.partition))

    def group_changed(self, event: GroupChanged) -> None:
        self.changes.append(event)

    def commit_failed(self, event: CommitFailed) -> None:
        self.failures.append(event)

    def handler_failed(self, event: HandlerFailed) -> None:
        self.failed_handlers.append(event)

    def partition_blocked(self, event: PartitionBlocked) -> None:
        self.blocked.append(event)


async def publish(client: Client, stream: str, partition: int, count: int = 1) -> None:
    """Publish so many messages."""
    for number in range(count):
        await client.publish(stream, b"%d" % number, partition=partition)


async def take(group: ConsumerGroup, count: int) -> list[Message]:
    """So many messages."""
    async with asyncio.timeout(BOUND):
        return [await anext(group) for _ in range(count)]


def places(messages: Iterable[Message]) -> list[tuple[int, int]]:
    """Partition and offset of each, in order of these."""
    return sorted((each.partition, each.offset) for each in messages)


def it_is(condition: Callable[[], bool]) -> Callable[[], Awaitable[bool]]:
    """A condition to wait for."""

    async def look() -> bool:
        return condition()

    return look


async def holds(group: ConsumerGroup, count: int) -> None:
    """Wait until a member has so many partitions."""
    await eventually(lambda: len(group.assignment) == count)


async def shared(groups: Iterable[ConsumerGroup], counts: set[int]) -> None:
    """Wait until the members have so many each, in any order."""
    await eventually(lambda: {len(group.assignment) for group in groups} == counts)


async def cursor(client: Client, group: str, stream: str, partition: int = 0) -> int | None:
    """Return the committed position of a group."""
    return await client.fetch_cursor(f"__group:{group}", stream, partition)
