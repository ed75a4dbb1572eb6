"""The memory of one client that reads many partitions; prints one line of JSON.

    python -m benchmarks.scale_memory reader --servers HOST:PORT --partitions 1000

What Python has allocated above what the connected client has, on real sockets: held when all are
read, and at most until then. The resident set would not do: it begins with a megabyte or two that
imports have left free, so that few partitions seem to cost nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import sys
import tracemalloc
from contextlib import AbstractAsyncContextManager
from typing import Final

from liftbridge_aio import Client, ClientOptions, Hook, StartAt
from liftbridge_aio.telemetry import Subscribed

KINDS: Final = ("reader", "member")
_BOUND: Final = 300.0


class _Subscribed(Hook):
    """Counts the partitions that were read so far."""

    def __init__(self) -> None:
        self._count = 0
        self._more = asyncio.Event()

    def subscribed(self, event: Subscribed) -> None:
        """See `Hook`."""
        del event
        self._count += 1
        self._more.set()

    async def wait(self, count: int) -> None:
        """Wait until there are so many."""
        while self._count < count:
            self._more.clear()
            await self._more.wait()


async def measure(kind: str, servers: str, partitions: int) -> dict[str, int]:
    """Measure a plain subscription to all partitions, or the only member of a group."""
    hook = _Subscribed()
    options = ClientOptions(call_timeout=_BOUND, hook=hook)
    async with Client(servers, options=options) as client, asyncio.timeout(_BOUND):
        for stream, count in (("one", 1), ("all", partitions)):
            await client.create_stream(stream, partitions=count)
        async with _reading(client, kind, "one"):  # what is made once
            await hook.wait(1)
        gc.collect()
        tracemalloc.start()
        async with _reading(client, kind, "all"):
            await hook.wait(1 + partitions)
            _, most = tracemalloc.get_traced_memory()
            gc.collect()
            held, _ = tracemalloc.get_traced_memory()
            tracemalloc.stop()
    return {"held_bytes": held, "most_bytes": most}


def _reading(client: Client, kind: str, stream: str) -> AbstractAsyncContextManager[object]:
    if kind == "member":
        return client.group(stream, [stream], start=StartAt.earliest(), timeout=_BOUND)
    return client.subscribe(stream, start=StartAt.new_only(), timeout=_BOUND)


def main() -> None:
    """Do what the words say."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--servers", required=True)
    parser.add_argument("--partitions", type=int, required=True)
    given = parser.parse_args()
    figures = asyncio.run(measure(given.kind, given.servers, given.partitions))
    sys.stdout.write(json.dumps(figures) + "\n")


if __name__ == "__main__":
    main()
