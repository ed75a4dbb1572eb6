"""Whether a service can do its work: what its health route answers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from liftbridge_aio.client import Client
from liftbridge_aio.errors import LiftbridgeError
from liftbridge_aio.integrations.service import Service
from liftbridge_aio.options import Duration, timer_seconds

_SHARE: Final = 0.8
"""Of the time, for one question: its own error says more than that all of the time was up."""


class Health(NamedTuple):
    """Whether a service is ready, and what is wrong if it is not."""

    problems: tuple[str, ...]
    """Words for operators, with names and addresses; empty: all is well."""
    seconds: float | None
    """How long a server took to answer; None where none did."""

    @property
    def status(self) -> int:
        """The HTTP status that says it."""
        return 503 if self.problems else 200

    def as_dict(self) -> dict[str, Any]:
        """Return what the health route answers, for JSON."""
        status = "unready" if self.problems else "ready"
        return {"status": status, "problems": self.problems, "seconds": self.seconds}


async def look_after(service: Service, streams: Sequence[str], timeout: Duration) -> Health:
    """Ask a server for a sign of life, and for the leaders of the streams that are needed.

    Raises nothing for what is wrong. Cancelling abandons the questions.

    Args:
        service: whose client asks.
        streams: each must exist, and each of its partitions must have a leader.
        timeout: seconds for everything.
    """
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
