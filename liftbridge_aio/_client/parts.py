"""The parts of a connected client; imported on connecting, because this imports the network."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeAlias
from weakref import WeakSet

from liftbridge_aio._admin.cursors import Cursors
from liftbridge_aio._admin.streams import StreamAdministration
from liftbridge_aio._core.foreign_cancellation import failure_of
from liftbridge_aio._publish.publisher import Publisher
from liftbridge_aio._publish.retry import ReadBack, RetryingPublisher
from liftbridge_aio._runtime.bounded_gather import bounded_gather
from liftbridge_aio._runtime.supervisor import Supervisor
from liftbridge_aio._subscribe.core.memory_budget import MemoryBudget
from liftbridge_aio._subscribe.core.plan import MergedPlan, ReadingPlan
from liftbridge_aio._subscribe.cursor_committer import CursorCommitter
from liftbridge_aio._subscribe.durable_reader import DurableReader
from liftbridge_aio._subscribe.merged_subscription import MergedSubscription
from liftbridge_aio._subscribe.position_store import PositionStore
from liftbridge_aio._subscribe.subscription import Subscription
from liftbridge_aio.errors import (
    LiftbridgeError,
    PublishOutcomeUnknown,
    PublishTimeout,
    WrongType,
)
from liftbridge_aio.interceptors import AckFuture, Interceptor, chained
from liftbridge_aio.model import OutgoingMessage, PublishOptions
from liftbridge_aio.net.connection_pool import ConnectionPool
from liftbridge_aio.net.grpclib_shape import data_lane_available
from liftbridge_aio.net.metadata import MetadataCache
from liftbridge_aio.net.network import Network
from liftbridge_aio.net.reporter import Reporter
from liftbridge_aio.net.router import Router
from liftbridge_aio.options import ClientOptions, timer_seconds

logger = logging.getLogger("liftbridge_aio.cursors")


class Closing(Protocol):
    """The parts that are closed before the client can publish no more."""

    async def aclose(self) -> None:
        """Close."""


Submit: TypeAlias = Callable[[OutgoingMessage], Awaitable[AckFuture]]


class SubmitNow(Protocol):
    """`Publisher.submit_now`."""

    def __call__(
        self,
        stream: str,
        value: bytes,
        key: bytes | None,
        headers: Mapping[str, bytes] | None,
        options: PublishOptions,
        encoded: bytes = b"",
    ) -> AckFuture | None:
        """Queue a plain message where nothing has to be awaited."""


class ClientParts(NamedTuple):
    """The parts of a connected client."""

    loop: asyncio.AbstractEventLoop
    network: Network
    publisher: Publisher
    retrying: RetryingPublisher
    submit: Submit
    """Queues a message by way of the interceptors and returns the future of its ack."""
    submit_now: SubmitNow
    """Queues a plain message where nothing has to be awaited; else, and always with interceptors,
    it returns None."""
    cursors: Cursors
    streams: StreamAdministration
    budget: MemoryBudget
    durables: set[DurableReader]
    """Subscriptions that store a cursor now."""
    queues: WeakSet[Closing]
    """Queues that are open now: they store acks by publishing."""

    def subscription(
        self, plan: ReadingPlan, close_timeout: float, durable: PositionStore | None = None
    ) -> Subscription:
        """Return a subscription; nothing is sent before it is entered or read."""
        return Subscription(plan, self.network, self.budget, close_timeout, durable)

    def merged_subscription(
        self, plans: MergedPlan, close_timeout: float, durable: PositionStore | None = None
    ) -> MergedSubscription:
        """Return a subscription to several partitions; see `subscription`."""
        return MergedSubscription(plans, self.network, self.budget, close_timeout, durable)

    def durable_reading(self, cursor_id: str, interval: float, timeout: float) -> DurableReader:
        """Return the cursor of a subscription.

        Args:
            cursor_id: its id.
            interval: seconds between commits.
            timeout: seconds to store or to read a position.
        """
        failed = self.network.reporter.commit_failed
        committer = CursorCommitter(cursor_id, self.cursors, timeout=timeout, failed=failed)
        return DurableReader(committer, self.cursors, self.network, interval, self.durables)

    async def close_queues(self, timeout: float) -> None:
        """Close all queues, so that they store their last acks.

        Failures within `timeout` seconds are logged. Cancelling abandons the wait.
        """
        try:
            async with asyncio.timeout(timeout):
                await bounded_gather(tuple(self.queues), lambda one: one.aclose())
        except (LiftbridgeError, TimeoutError) as error:
            logger.warning("a queue was not closed in order: %r", error)

    async def store_cursors(self, timeout: float) -> None:
        """Store the cursors of all subscriptions a last time.

        Failures within `timeout` seconds are logged. Cancelling takes effect after that.
        """
        for error in await bounded_gather(tuple(self.durables), lambda one: one.close(timeout)):
            if error is not None:
                logger.warning("a cursor was not stored while the client was closed: %s", error)


async def assemble(
    seeds: Sequence[str], options: ClientOptions, read_back: ReadBack
) -> ClientParts:
    """Create the parts, and start the task that owns all others. Cancelling stops it."""
    reporter = Reporter(options.hook)
    supervisor = Supervisor("liftbridge_aio")
    lane = options.data_lane and data_lane_available()
    budget = MemoryBudget(options.max_buffered_bytes, places=1 if lane else 2)
    metadata = MetadataCache(options, supervisor, reporter)
    pool = ConnectionPool(supervisor, options, reporter, lambda: budget.share)
    router = Router(seeds, options, supervisor, pool, reporter, lambda: metadata.snapshot)
    metadata.attach(router)
    not_found_timeout = timer_seconds(options.not_found_timeout)
    network = Network(supervisor, reporter, pool, router, metadata, not_found_timeout)
    await supervisor.start()
    supervisor.spawn(metadata.keep_fresh, name="metadata-age")
    publisher = Publisher(network, options)
    retrying = RetryingPublisher(publisher, network, read_back)
    submit, submit_now = _intercepted(publisher, retrying, options.interceptors)
    cursors, streams = Cursors(network), StreamAdministration(network)
    loop = asyncio.get_running_loop()
    return ClientParts(
        loop,
        network,
        publisher,
        retrying,
        submit,
        submit_now,
        cursors,
        streams,
        budget,
        set(),
        WeakSet(),
    )


def _intercepted(
    publisher: Publisher, retrying: RetryingPublisher, interceptors: Sequence[Interceptor]
) -> tuple[Submit, SubmitNow]:
    if not interceptors:
        return retrying.submit, publisher.submit_now
    wrappers = [each.publish for each in interceptors]

    async def submit(message: OutgoingMessage) -> AckFuture:
        sent = False

        async def send(outgoing: OutgoingMessage) -> AckFuture:
            nonlocal sent
            sent = True
            return await retrying.submit(outgoing)

        stream, seconds = message.stream, publisher.seconds_for(message)
        try:
            async with asyncio.timeout(seconds) as limit:
                future: object = await chained(wrappers, send)(message)
        except asyncio.CancelledError as error:
            raise failure_of(error, "an interceptor") from error
        except TimeoutError as error:
            if not limit.expired():
                raise
            text = f"the interceptors took longer than {seconds:g} s"
            if sent:
                raise PublishOutcomeUnknown(text, stream=stream) from error
            raise PublishTimeout(text, stream=stream) from error
        if not isinstance(future, asyncio.Future):
            names = ", ".join(type(each).__name__ for each in interceptors)
            raise WrongType(
                f"an interceptor must return the future of the ack, not {future!r} ({names})",
                stream=stream,
            )
        return future

    return submit, lambda *_: None
