"""What a client's parts need of the network, in one value."""

from __future__ import annotations

from dataclasses import dataclass

from liftbridge_aio.wire import health
from liftbridge_aio.wire.rpc import HEALTH_CHECK

from .link import HEALTH_SERVICE
from .metadata import MetadataCache
from .pool import LinkPool
from .reporter import Reporter
from .router import Router
from .supervisor import Supervisor


@dataclass(frozen=True, slots=True)
class Connection:
    """Everything of one client that talks to servers."""

    supervisor: Supervisor
    reporter: Reporter
    pool: LinkPool
    router: Router
    metadata: MetadataCache
    not_found_timeout: float
    """Seconds for which "not found" is retried."""

    async def ping(self, timeout: float) -> None:
        """Ask any server for a sign of life. Cancelling abandons the question.

        Raises:
            LiftbridgeError: none answered in time.
        """
        request = health.HealthCheckRequest(service=HEALTH_SERVICE)
        await self.router.call_any(HEALTH_CHECK, request, timeout)
