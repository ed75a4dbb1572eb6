"""The memory of one client that reads many partitions; prints one line of JSON.

    python -m benchmarks.scale_memory reader --servers HOST:PORT --partitions 1000

The resident set above that of the connected client, on real sockets. Linux only.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from typing import Final

from liftbridge_aio import ALL_PARTITIONS, Client, ClientOptions, Hook, StartAt
from liftbridge_aio.telemetry import Subscribed

from .peers.ours_memory import Figures, Memory

KINDS: Final = ("reader", "member")
_BOUND: Final = 300.0


class _Subscribed(Hook):
    """Is told when all partitions are read."""

    def __init__(self, partitions: int) -> None:
        self._left = partitions
        self.all = asyncio.Event()

    def subscribed(self, event: Subscribed) -> None:
        """See `Hook`."""
        del event
        self._left -= 1
        if self._left == 0:
            self.all.set()


async def measure(kind: str, servers: str, partitions: int) -> Figures:
    """Measure a plain subscription to all partitions, or the only member of a group."""
    stream, hook = f"{kind}-{partitions}", _Subscribed(partitions)
    options = ClientOptions(call_timeout=_BOUND, hook=hook)
    async with Client(servers, options=options) as client, asyncio.timeout(_BOUND):
        await client.create_stream(stream, partitions=partitions)
        memory = Memory()
        if kind == "reader":
            reading = client.subscribe(stream, ALL_PARTITIONS, StartAt.new_only(), timeout=_BOUND)
            async with reading:
                await hook.all.wait()
                figures = memory.figures()
        else:
            async with client.group(stream, [stream], start=StartAt.earliest(), timeout=_BOUND):
                await hook.all.wait()
                figures = memory.figures()
        await client.delete_stream(stream)
    return figures


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
