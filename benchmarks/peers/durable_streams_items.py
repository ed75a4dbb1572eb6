"""What the programs of Durable Streams have in common: JSON messages, batches, and the reading."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any, Final

from benchmarks.peers.measuring import Outcome, Settings, Watch

JSON: Final = "application/json"
START: Final = "-1"
IN_FLIGHT: Final = 5
"""Batches on their way at a time; together they fill the window."""
_READS: Final = 5
_EMPTY: Final = len(json.dumps({"value": ""}, separators=(",", ":")))


def url(settings: Settings) -> str:
    """The URL of the stream."""
    return f"http://{settings.servers[0]}/{settings.stream}"


def item(settings: Settings) -> dict[str, Any]:
    """A message that has the wanted size as compact JSON."""
    return {"value": "x" * (settings.message_size - _EMPTY)}


def batch_items(settings: Settings) -> int:
    """Messages of a batch."""
    return max(1, settings.window // IN_FLIGHT)


async def read_again_and_again(settings: Settings, read: Callable[[], Awaitable[int]]) -> Outcome:
    """Read a whole stream some times, after once that does not count.

    Args:
        settings: How many messages are expected; there may be more.
        read: Reads the stream and tells how many there were.
    """
    await read()
    watch = Watch()
    counts = [await read() for _ in range(_READS)]
    outcome = watch.stop(sum(counts))
    outcome.errors = sum(max(0, settings.expected - count) for count in counts)
    return outcome
