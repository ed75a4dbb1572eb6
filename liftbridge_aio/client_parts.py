"""What a connected client is made of; it imports the network, so `Client` imports it late."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from .cursor_keeper import CursorKeeper
from .cursors import Cursors
from .durable_reading import DurableReading
from .merged_plan import MergedPlan
from .merged_subscription import MergedSubscription
from .net.connection import Connection
from .net.grpclib_shape import data_lane_available
from .net.metadata import MetadataCache
from .net.pool import LinkPool
from .net.reporter import Reporter
from .net.router import Router
from .net.supervisor import Supervisor
from .options import ClientOptions, timer_seconds
from .publish_retry import ReadBack, RetryingPublisher
from .publisher import Publisher
from .read_budget import ReadBudget
from .reading_plan import ReadingPlan
from .streams import StreamAdministration
from .subscription import Subscription


class ClientParts(NamedTuple):
    """What exists only while a client is connected."""

    loop: asyncio.AbstractEventLoop
    connection: Connection
    publisher: Publisher
    retrying: RetryingPublisher
    cursors: Cursors
    streams: StreamAdministration
    budget: ReadBudget

    def subscription(
        self, plan: ReadingPlan, close_timeout: float, durable: DurableReading | None = None
    ) -> Subscription:
        """Make a subscription; nothing happens before it is entered or read."""
        return Subscription(plan, self.connection, self.budget, close_timeout, durable)

    def merged_subscription(
        self, plans: MergedPlan, close_timeout: float, durable: DurableReading | None = None
    ) -> MergedSubscription:
        """Make a subscription to several partitions; nothing happens before it is read either."""
        return MergedSubscription(plans, self.connection, self.budget, close_timeout, durable)

    def durable_reading(self, cursor_id: str, interval: float, timeout: float) -> DurableReading:
        """Make what keeps the cursor of a subscription.

        Args:
            cursor_id: names the cursor.
            interval: seconds from one time of storing to the next.
            timeout: seconds to store or to read a position.
        """
        failed = self.connection.reporter.commit_failed
        keeper = CursorKeeper(cursor_id, self.cursors, timeout=timeout, failed=failed)
        return DurableReading(keeper, self.connection, interval)


async def assemble(
    seeds: Sequence[str], options: ClientOptions, read_back: ReadBack
) -> ClientParts:
    """Put the parts together and start the task that owns all others.

    Cancelling stops that task again.
    """
    reporter = Reporter(options.hook)
    supervisor = Supervisor("liftbridge_aio")
    lane = options.data_lane and data_lane_available()
    budget = ReadBudget(options.max_buffered_bytes, places=1 if lane else 2)
    metadata = MetadataCache(options, supervisor, reporter)
    pool = LinkPool(supervisor, options, reporter, lambda: budget.share)
    router = Router(seeds, options, supervisor, pool, reporter, lambda: metadata.snapshot)
    metadata.attach(router)
    not_found_timeout = timer_seconds(options.not_found_timeout)
    connection = Connection(supervisor, reporter, pool, router, metadata, not_found_timeout)
    await supervisor.start()
    supervisor.spawn(metadata.keep_fresh, name="metadata-age")
    publisher = Publisher(connection, options)
    retrying = RetryingPublisher(publisher, connection, read_back)
    cursors, streams = Cursors(connection), StreamAdministration(connection)
    loop = asyncio.get_running_loop()
    return ClientParts(loop, connection, publisher, retrying, cursors, streams, budget)
