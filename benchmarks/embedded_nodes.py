"""An embedded broker, or a cluster of them, as a program: one for each port that it is given."""

from __future__ import annotations

import asyncio
import sys

from liftbridge_aio.broker import EmbeddedBroker, EmbeddedCluster


async def main(ports: list[int]) -> None:
    """Run until the process is ended."""
    server = (
        EmbeddedBroker(port=ports[0])
        if len(ports) == 1
        else EmbeddedCluster(nodes=len(ports), ports=ports)
    )
    async with server:
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main([int(word) for word in sys.argv[1:]]))
