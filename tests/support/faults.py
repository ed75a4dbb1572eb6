"""Helpers of the tests of faults: a recording hook, bounded waits, cancellation by steps."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from liftbridge_aio import (
    Ack,
    Client,
    ClientOptions,
    Hook,
    LiftbridgeError,
    Message,
    PublishOutcomeUnknown,
    StartAt,
    StopAt,
    StreamReset,
)
from liftbridge_aio.retry import Backoff
from liftbridge_aio.telemetry import (
    Connected,
    Lost,
    MetadataRefreshed,
    PublishFailed,
    Resubscribed,
    Retried,
    Subscribed,
)

BOUND: Final = 15.0
"""Seconds after which a wait has failed, unless a test knows better."""
QUICK: Final = Backoff(initial=0.005, maximum=0.05)
"""Waits between tries that suit servers on the same machine."""


async def await_what_others_cancel() -> None:
    """Await a future that somebody else has cancelled, as a callback may."""
    shared = asyncio.get_running_loop().create_future()
    shared.cancel()
    await shared


Options = Callable[..., ClientOptions]

if TYPE_CHECKING:
    from support.lone_servers import LoneServer


@contextlib.contextmanager
def unless_offsets_repeat(server: LoneServer, stream: str) -> Iterator[None]:
    """Let pass what fails where the server gave offsets anew.

    Once in some hundred kills v1.9.0 goes on at an offset that its log is beyond.
    """
    try:
        yield
    except* (AssertionError, StreamReset):  # of the test, or of a task beside it
        if not server.gives_offsets_anew(stream):
            raise


@dataclass(slots=True)
class Recorder(Hook):
    """Remembers what the client tells."""

    up: list[Connected] = field(default_factory=list)
    down: list[Lost] = field(default_factory=list)
    started: list[Subscribed] = field(default_factory=list)
    resumed: list[Resubscribed] = field(default_factory=list)
    failures: list[PublishFailed] = field(default_factory=list)
    tries: list[Retried] = field(default_factory=list)
    refreshes: list[MetadataRefreshed] = field(default_factory=list)

    def connected(self, event: Connected) -> None:
        self.up.append(event)

    def lost(self, event: Lost) -> None:
        self.down.append(event)

    def subscribed(self, event: Subscribed) -> None:
        self.started.append(event)

    def resubscribed(self, event: Resubscribed) -> None:
        self.resumed.append(event)

    def publish_failed(self, event: PublishFailed) -> None:
        self.failures.append(event)

    def retried(self, event: Retried) -> None:
        self.tries.append(event)

    def metadata_refreshed(self, event: MetadataRefreshed) -> None:
        self.refreshes.append(event)


async def eventually(condition: Callable[[], object], bound: float = BOUND) -> None:
    """Wait until `condition` holds; TimeoutError after `bound` seconds."""
    async with asyncio.timeout(bound):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.002)


async def within(seconds: float, work: Awaitable[Any]) -> Any:
    """Await `work`, for at most so many seconds."""
    async with asyncio.timeout(seconds):
        return await work


async def take(
    subscription: AsyncIterator[Message], count: int, bound: float = BOUND
) -> list[Message]:
    """The next `count` messages."""
    async with asyncio.timeout(bound):
        return [await anext(subscription) for _ in range(count)]


async def read_all(client: Client, stream: str, partition: int = 0) -> list[Message]:
    """Everything that is stored in a partition."""
    async with (
        asyncio.timeout(BOUND),
        client.subscribe(
            stream, partition=partition, start=StartAt.earliest(), stop=StopAt.latest()
        ) as subscription,
    ):
        return [message async for message in subscription]


def in_flight(client: Client) -> int:
    """Messages that the publisher holds room for."""
    figures = client.statistics().publisher
    return 0 if figures is None else figures.in_flight + figures.waiting


@dataclass(slots=True)
class Outcomes:
    """The outcomes of a number of publishes; each is in exactly one list, by its index."""

    acked: dict[int, Ack] = field(default_factory=dict)
    unknown: dict[int, PublishOutcomeUnknown] = field(default_factory=dict)
    refused: dict[int, LiftbridgeError] = field(default_factory=dict)
    """Any other error of the tree: certainly not stored."""

    @property
    def count(self) -> int:
        return len(self.acked) + len(self.unknown) + len(self.refused)


async def outcomes_of(futures: Sequence[asyncio.Future[Any]], bound: float) -> Outcomes:
    """Wait for all; a future that is not settled in time or fails otherwise fails the test."""
    _, hanging = await asyncio.wait(futures, timeout=bound)
    assert not hanging, f"{len(hanging)} of {len(futures)} futures hang"
    found = Outcomes()
    for number, future in enumerate(futures):
        error = future.exception()
        if error is None:
            ack = future.result()
            assert ack is not None
            found.acked[number] = ack
        elif isinstance(error, PublishOutcomeUnknown):
            found.unknown[number] = error
        else:
            assert isinstance(error, LiftbridgeError), repr(error)
            found.refused[number] = error
    return found


@contextlib.asynccontextmanager
async def nothing_left_behind() -> AsyncIterator[None]:
    """Afterwards there are the tasks that were there before, and no others.

    The client's own must be gone at once; servers and proxies in this loop get a moment to
    notice that a connection is closed.
    """
    await asyncio.sleep(0.001)  # until nothing can run: a broker may be about to begin its tasks
    before = asyncio.all_tasks()
    yield
    ours = [
        task.get_name()
        for task in asyncio.all_tasks() - before
        if task.get_name().startswith("liftbridge_aio:") or task.get_name() in {"acks", "writer"}
    ]
    assert not ours, f"left behind: {ours}"
    await eventually(lambda: not asyncio.all_tasks() - before)


async def steps(count: int) -> None:
    """Let the event loop go round so many times."""
    for _ in range(count):
        await asyncio.sleep(0)


async def cancelled_after(count: int, operation: Coroutine[Any, Any, Any]) -> bool:
    """Run an operation and cancel it after so many rounds of the event loop.

    Returns:
        Whether the cancellation hit it; False where it had ended before.

    The operation must end within `BOUND` seconds, and by nothing but its result, an error of the
    tree, or its cancellation.
    """
    task = asyncio.create_task(operation, name="the operation under test")
    await steps(count)
    hit = task.cancel()
    done, _ = await asyncio.wait([task], timeout=BOUND)
    assert done, "the operation does not end after its cancellation"
    if task.cancelled():
        return True
    error = task.exception()
    assert error is None or isinstance(error, LiftbridgeError), repr(error)
    return hit
