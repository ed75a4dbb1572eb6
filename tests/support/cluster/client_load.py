"""Load on a stream by the client, remembered so that it can be judged, and calls that are timed."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final, TypeVar

from liftbridge_aio import (
    AckPolicy,
    Client,
    ClientOptions,
    LiftbridgeError,
    Message,
    PublishOutcomeUnknown,
    StartAt,
)
from liftbridge_aio._subscribe.subscription import Subscription
from support.cluster.nodes import BOUND

T = TypeVar("T")

OPTIONS: Final = ClientOptions(
    connect_timeout=1.0,
    call_timeout=3.0,
    ack_timeout=1.0,
    publish_timeout=2.0,
    health_interval=0.5,
    health_timeout=1.0,
)
"""Of a client that notices soon what is wrong, and gives up soon."""

GRACE: Final = 1.0
"""Seconds that a call may take longer than its timeout."""
CALL_BOUND: Final = 3.0 + GRACE
PUBLISH_BOUND: Final = 1.0 + 2.0 + GRACE

_WORKERS: Final = 4
_PAUSE: Final = 0.005  # so that the processors are left to the servers
_numbers = itertools.count()


async def timed(call: Awaitable[T], bound: float = CALL_BOUND) -> T:
    """Await a call; it must end within so many seconds, whether well or not."""
    began = time.monotonic()
    try:
        return await call
    finally:
        took = time.monotonic() - began
        assert took <= bound, f"{took:.1f} s"


async def refused(call: Awaitable[object]) -> LiftbridgeError:
    """The error by which a call ends, in time."""
    try:
        result = await timed(call)
    except LiftbridgeError as error:
        return error
    message = f"it succeeded: {result}"
    raise AssertionError(message)


async def eventually(condition: Callable[[], object], bound: float = BOUND) -> None:
    """Wait until `condition` holds; TimeoutError after `bound` seconds."""
    async with asyncio.timeout(bound):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.005)


@dataclass(slots=True)
class Publishing:
    """Publishes without end, a few messages at a time; how each of them ended.

    Attributes:
        acked: The offset of each value that was acked.
        unknown: Values that may be stored or not.
        refused: How values ended that are certainly not stored.
        longest: Seconds that one publish took.
    """

    client: Client
    stream: str
    policy: AckPolicy
    acked: dict[bytes, int] = field(default_factory=dict)
    unknown: set[bytes] = field(default_factory=set)
    refused: dict[bytes, LiftbridgeError] = field(default_factory=dict)
    longest: float = 0.0

    @property
    def values(self) -> set[bytes]:
        """All that was published and has ended."""
        return self.acked.keys() | self.unknown | self.refused.keys()

    async def more(self, count: int = 20) -> None:
        """Wait until so many more messages have been acked."""
        enough = len(self.acked) + count
        await eventually(lambda: len(self.acked) >= enough)

    async def run(self) -> None:
        """Publish until cancelled. An error that is not of the tree ends it, and the test."""
        while True:
            value = b"%d" % next(_numbers)
            began = time.monotonic()
            try:
                ack = await self.client.publish(self.stream, value, ack_policy=self.policy)
            except PublishOutcomeUnknown:
                self.unknown.add(value)
            except LiftbridgeError as error:
                self.refused[value] = error
            else:
                assert ack is not None
                self.acked[value] = ack.offset
            self.longest = max(self.longest, time.monotonic() - began)
            await asyncio.sleep(_PAUSE)


@asynccontextmanager
async def publishing(
    client: Client, stream: str, policy: AckPolicy = AckPolicy.ALL
) -> AsyncIterator[Publishing]:
    """Publish meanwhile; what is on its way at the end is waited for. No publish may hang."""
    load = Publishing(client, stream, policy)
    workers = [asyncio.create_task(load.run()) for _ in range(_WORKERS)]
    try:
        yield load
    finally:
        for worker in workers:
            worker.cancel()
        ends = await asyncio.gather(*workers, return_exceptions=True)
    assert all(isinstance(end, asyncio.CancelledError) for end in ends), ends
    assert load.longest <= PUBLISH_BOUND


async def collect(messages: Subscription, into: list[Message]) -> None:
    """Read until the end, while somebody looks at what has come."""
    async for message in messages:
        into.append(message)  # noqa: PERF401


async def all_messages(client: Client, stream: str, last: int) -> list[Message]:
    """Partition 0 from its beginning to the offset `last`."""
    found: list[Message] = []
    async with (
        asyncio.timeout(BOUND),
        client.subscribe(stream, start=StartAt.earliest()) as messages,
    ):
        while not found or found[-1].offset < last:
            found.append(await anext(messages))
    return found


def judge(received: Iterable[Message], *loads: Publishing) -> None:
    """Nothing acked by all is missing, and nothing comes twice, out of order or from nowhere.

    A value that nobody has heard the end of yet may be there.
    """
    received = list(received)
    offsets = [message.offset for message in received]
    assert offsets == sorted(set(offsets))
    found = {message.value: message.offset for message in received}
    assert len(found) == len(received)
    for load in loads:
        assert not found.keys() & load.refused.keys()
        if load.policy is AckPolicy.ALL:
            assert {value: found.get(value) for value in load.acked} == load.acked
