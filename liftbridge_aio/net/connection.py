"""What a client's parts need of the network, in one value."""

from __future__ import annotations

from dataclasses import dataclass

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
