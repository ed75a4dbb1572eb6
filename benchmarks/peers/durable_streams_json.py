"""`json.loads` alone, of the bodies that a catch-up read brings: what no client can do without.

`python -m benchmarks.peers.durable_streams_json consume …`
"""

from __future__ import annotations

import asyncio
import json
import urllib.request

from benchmarks.peers.durable_streams_items import START, read_again_and_again, url
from benchmarks.peers.measuring import Outcome, Settings, main


def consume(settings: Settings) -> Outcome:
    """Decode what the stream holds, which was fetched before."""
    bodies = _bodies(url(settings))

    async def read() -> int:
        return sum(len(json.loads(body)) for body in bodies)

    return asyncio.run(read_again_and_again(settings, read))


def _bodies(target: str) -> list[bytes]:
    bodies, offset, up_to_date = [], START, False
    while not up_to_date:
        with urllib.request.urlopen(f"{target}?offset={offset}") as response:  # noqa: S310 - http
            bodies.append(response.read())
            offset = response.headers["Stream-Next-Offset"]
            up_to_date = response.headers["Stream-Up-To-Date"] == "true"
    return bodies


if __name__ == "__main__":
    main("json.loads", None, {"consume": consume})
