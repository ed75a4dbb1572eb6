"""The runs of a client on asyncio, whichever it is."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import aclosing, asynccontextmanager
from typing import Any, Protocol

from benchmarks.peers.measuring import (
    WARM_UP,
    CallEnded,
    Delivered,
    Outcome,
    Settings,
    Unsupported,
    Watch,
)
from benchmarks.peers.pacing import apaced, stamp, stamped


class Client(Protocol):
    """A connected client."""

    def request(self, partition: int, value: bytes, policy: str) -> Any:
        """A message to publish; policies are `leader`, `all` and `none`."""

    def exchange(self, requests: AsyncIterator[Any]) -> AsyncGenerator[Any, None]:
        """Publish what comes; yields an answer to each message that asks for one."""

    async def publish(self, partition: int, value: bytes, policy: str) -> None:
        """Publish one message and wait for its answer; raises if that is a refusal."""

    def read(self, partition: int, start: str) -> AsyncIterator[Delivered]:
        """The messages of a partition from the `earliest` or the `latest`."""


@asynccontextmanager
async def _together() -> AsyncGenerator[asyncio.TaskGroup, None]:
    """A task group whose first failure is told as it is: its kind says what is printed."""
    try:
        async with asyncio.TaskGroup() as group:
            yield group
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None


async def consume(client: Client, settings: Settings) -> Outcome:
    """Read all partitions at once until there are as many messages as expected."""
    received = errors = 0
    done = asyncio.Event()

    async def read(partition: int) -> None:
        nonlocal received, errors
        following = None
        async for message in client.read(partition, "earliest"):
            errors += message.offset != following is not None or not message.value
            following = message.offset + 1
            received += 1
            if received == settings.expected:
                done.set()
        raise CallEnded

    watch = Watch()
    async with _together() as group:
        readers = [group.create_task(read(number)) for number in range(settings.partitions)]
        await done.wait()
        outcome = watch.stop(settings.expected)
        for reader in readers:
            reader.cancel()
    outcome.errors = errors
    return outcome


async def publish(client: Client, settings: Settings) -> Outcome:
    """Publish to all partitions in turn and wait for every answer."""
    if settings.window == 1 and settings.ack_policy != "none":
        return await _publish_one_by_one(client, settings)
    await _warm_up(client, settings.window, settings.partitions, settings.value)
    watch = Watch()
    window = Window(client, settings.window)
    await window.publish(_messages(settings), settings.messages - settings.unacked)
    outcome = watch.stop(settings.messages)
    outcome.errors = window.errors
    return outcome


async def _warm_up(client: Client, window: int, partitions: int, value: bytes) -> None:
    messages = ((number % partitions, value, "leader") for number in range(WARM_UP))
    await Window(client, window).publish(messages, WARM_UP)


def _messages(settings: Settings) -> Iterable[tuple[int, bytes, str]]:
    value, partitions, unacked = settings.value, settings.partitions, settings.unacked
    acked = "leader" if unacked else settings.ack_policy
    for number in range(settings.messages):
        yield number % partitions, value, "none" if number < unacked else acked


async def _publish_one_by_one(client: Client, settings: Settings) -> Outcome:
    value, policy = settings.value, settings.ack_policy
    for number in range(WARM_UP):
        await client.publish(number % settings.partitions, value, policy)
    took = []
    watch = Watch()
    for number in range(settings.messages):
        began = time.monotonic_ns()
        await client.publish(number % settings.partitions, value, policy)
        took.append(time.monotonic_ns() - began)
    outcome = watch.stop(settings.messages)
    outcome.latencies["latency"] = took
    return outcome


class Window:
    """A bidirectional call with a bound on the messages that are unanswered at a time."""

    def __init__(self, client: Client, size: int) -> None:
        self.errors = 0
        self._client = client
        self._room = asyncio.Semaphore(size)
        self._all_answered = asyncio.Event()

    async def publish(self, messages: Iterable[tuple[int, bytes, str]], answers: int) -> None:
        """Publish, and return with the last of so many answers.

        The end of the call is not waited for: the server sometimes takes 5 seconds for it.
        """
        release, remaining = self._room.release, answers
        async with aclosing(self._client.exchange(self._requests(messages))) as answered:
            async for answer in answered:
                self.errors += answer.HasField("asyncError")
                release()
                remaining -= 1
                if not remaining:
                    self._all_answered.set()
                    return
        raise CallEnded

    async def _requests(self, messages: Iterable[tuple[int, bytes, str]]) -> AsyncIterator[Any]:
        request, acquire = self._client.request, self._room.acquire
        for partition, value, policy in messages:
            if policy != "none":
                await acquire()
            yield request(partition, value, policy)
        # The call ends with this.
        await self._all_answered.wait()


async def latency(client: Client, settings: Settings) -> Outcome:
    """Publish at a fixed rate while the same partition is read."""
    await _warm_up(client, 100, 1, stamped(0, settings.message_size))
    delivered: list[int] = []
    reading, done = asyncio.Event(), asyncio.Event()

    async def read() -> None:
        # The last message of the warm-up says that the subscription stands.
        async for message in client.read(0, "latest"):
            now = time.monotonic_ns()
            if due := stamp(message.value):
                delivered.append(now - due)
                if len(delivered) == settings.due:
                    done.set()
            else:
                reading.set()
        raise CallEnded

    async with _together() as group:
        reader = group.create_task(read())
        await reading.wait()
        watch = Watch()
        acked, errors = await _publish_at_rate(client, settings)
        await done.wait()
        outcome = watch.stop(settings.due)
        reader.cancel()
    outcome.errors = errors
    outcome.latencies = {
        "latency": delivered,
        "ack_latency": acked,
        "delivery_latency": delivered,
    }
    return outcome


async def _publish_at_rate(client: Client, settings: Settings) -> tuple[list[int], int]:
    """Return the nanoseconds to the ack of each message, and the number of refused ones."""
    acked: list[int] = []
    errors = 0
    unanswered: deque[int] = deque()
    all_answered = asyncio.Event()
    too_slow: list[Unsupported] = []

    async def requests() -> AsyncIterator[Any]:
        try:
            async for due in apaced(settings.rate, settings.due):
                unanswered.append(due)
                yield client.request(0, stamped(due, settings.message_size), "leader")
        except Unsupported as reason:
            # The library that asks for requests would swallow it.
            too_slow.append(reason)
        else:
            await all_answered.wait()

    async with aclosing(client.exchange(requests())) as answers:
        async for answer in answers:
            # One partition answers in order.
            acked.append(time.monotonic_ns() - unanswered.popleft())
            errors += answer.HasField("asyncError")
            if len(acked) == settings.due:
                all_answered.set()
                return acked, errors
    raise too_slow[0] if too_slow else CallEnded
