"""The parts of an open client and the tasks that run them."""

from __future__ import annotations

import asyncio

from liftbridge_aio.net.supervisor import Supervisor, wait_despite_cancellation
from liftbridge_aio.options import timer_seconds

from .errors import SessionLost
from .link import StreamingLink
from .options import ClientOptions
from .publisher import Publisher
from .session import Session


class ClientRuntime:
    """An open client."""

    def __init__(
        self, link: StreamingLink, cluster: str, client_id: str, options: ClientOptions
    ) -> None:
        self.link = link
        self.loop = asyncio.get_running_loop()
        self.request_timeout = timer_seconds(options.request_timeout)
        self._close_timeout = timer_seconds(options.close_timeout)
        self._options = options
        self._cluster = cluster
        self._supervisor = Supervisor("stan")
        self.publisher = Publisher(
            link, client_id, options.max_in_flight, options.max_in_flight_bytes
        )
        self.session = Session(link, client_id, options, self.publisher.take_ack, self._lost)

    async def start(self) -> None:
        await self._supervisor.start()
        self._supervisor.spawn(self.link.run, name="outbox")
        await self.session.open(self._cluster, self.request_timeout)
        self.publisher.use(self.session)
        self._supervisor.spawn(self.publisher.run, name="deadlines")
        self._supervisor.spawn(self._ping, name="pings")

    async def _ping(self) -> None:
        while True:
            await asyncio.sleep(self._options.ping_interval)
            self.session.ping()

    def _lost(self, error: SessionLost) -> None:
        self.publisher.fail_all(str(error))

    async def close(self) -> None:
        try:
            await self.session.close(self.request_timeout)
        finally:
            await wait_despite_cancellation(self._stop(), 3 * self._close_timeout)

    async def _stop(self) -> None:
        await self.session.release()
        self.publisher.fail_all("the client was closed")
        await self._supervisor.stop(self._close_timeout)
        await self.link.close(self._close_timeout)
