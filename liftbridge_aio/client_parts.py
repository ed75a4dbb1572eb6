"""What a connected client is made of; it imports the network, so `Client` imports it late."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from .cursors import Cursors
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

    def subscription(self, plan: ReadingPlan, close_timeout: float) -> Subscription:
        """Make a subscription; nothing happens before it is entered or read."""
        return Subscription(plan, self.connection, self.budget, close_timeout)


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
    publisher = Publisher(connection, options)
    retrying = RetryingPublisher(publisher, connection, read_back)
    cursors, streams = Cursors(connection), StreamAdministration(connection)
    loop = asyncio.get_running_loop()
    return ClientParts(loop, connection, publisher, retrying, cursors, streams, budget)
