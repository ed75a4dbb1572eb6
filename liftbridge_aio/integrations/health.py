"""The health check of a service, as its health route reports it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from liftbridge_aio._client.client import Client
from liftbridge_aio.errors import LiftbridgeError
from liftbridge_aio.integrations.service import Service
from liftbridge_aio.options import Duration, timer_seconds

HEADERS: Final = {"Cache-Control": "no-store"}
"""The headers of every response."""
_SHARE: Final = 0.8
"""The timeout of one call, as a share of the whole: its own error is more precise."""


class Health(NamedTuple):
    """The result of a health check."""

    problems: tuple[str, ...]
    """Texts for operators, with names and addresses; empty if the service is ready."""
    seconds: float | None
    """The response time of a server in seconds; None if none answered."""

    @property
    def status(self) -> int:
        """The HTTP status of the response."""
        return 503 if self.problems else 200

    def as_dict(self) -> dict[str, Any]:
        """Return the body of the response, for JSON."""
        status = "unready" if self.problems else "ready"
        return {"status": status, "problems": self.problems, "seconds": self.seconds}


async def check_service(service: Service, streams: Sequence[str], timeout: Duration) -> Health:
    """Ping a server and look up the leaders of the required streams.

    Problems are returned, not raised. Cancelling abandons the calls.

    Args:
        service: the service to check.
        streams: each must exist, and each of its partitions must have a leader.
        timeout: seconds for the whole check.
    """
    if service.failure is not None:
        return Health((f"the lifespan failed: {service.failure}",), None)
    if service.stopping.is_set():
        return Health(("the service is shutting down",), None)
    limit = timer_seconds(timeout, "timeout")
    seconds: float | None = None
    try:
        async with asyncio.timeout(limit):
            seconds = await service.client.ping(timeout=limit * _SHARE)
            problems = await _stream_problems(service.client, streams, limit * _SHARE)
    except LiftbridgeError as error:
        problems = (str(error),)
    except TimeoutError:
        problems = (f"no server answered within {limit:g} s",)
    return Health(problems, seconds)


async def _stream_problems(
    client: Client, streams: Sequence[str], timeout: float
) -> tuple[str, ...]:
    if not streams:
        return ()
    metadata = await client.fetch_metadata(list(streams), timeout=timeout)
    problems = []
    for name in streams:
        stream = metadata.streams.get(name)
        if stream is None:
            problems.append(f"stream {name!r} does not exist")
            continue
        problems += [
            f"partition {number} of stream {name!r} has no leader"
            for number in stream.partitions
            if metadata.leader(name, number) is None
        ]
    return tuple(problems)
