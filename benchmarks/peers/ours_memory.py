"""Our client as a program whose memory is measured; prints one line of JSON.

    python -m benchmarks.peers.ours_memory SCENARIO --servers HOST:PORT --stream NAME --messages N

N is how many messages the stream holds.

Memory is the resident set of this process, above what it is once the client is connected; the most
it reached in between counts, as the kernel keeps it (`VmHWM`). Linux only.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import importlib.metadata
import json
import sys
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from benchmarks.processes import memory_bytes
from liftbridge_aio import Client, ClientOptions, StartAt, Subscription

WAITING: Final = 100_000
WINDOW: Final = 1_000
SUBSCRIPTIONS: Final = 1_000
READ_BEHIND: Final = 20_000
READ_EACH: Final = 50

_SETTLED: Final = 1.0
"""Seconds without a change after which buffers are as full as they get."""
_BOUND: Final = 60.0
_KEEP_PEAK: Final = "5"

Figures = dict[str, int]


class Memory:
    """The most memory since it was made, and what there was then."""

    def __init__(self) -> None:
        gc.collect()
        Path("/proc/self/clear_refs").write_text(_KEEP_PEAK)
        self.idle = _own("VmRSS")

    def figures(self) -> Figures:
        """In bytes."""
        peak = _own("VmHWM")
        return {"rss_idle": self.idle, "rss_peak": peak, "added": peak - self.idle}


def _own(field: str) -> int:
    return memory_bytes(Path("/proc/self/status").read_text(), field)


async def reader_behind(client: Client, stream: str, messages: int) -> Figures:
    """A reader that stops after its first message, and later reads on."""
    memory = Memory()
    async with client.subscribe(stream, partition=0, start=StartAt.earliest()) as reading:
        await anext(reading)
        await _settled([reading])
        async with asyncio.timeout(_BOUND):
            for _ in range(min(READ_BEHIND, messages - 1)):
                await anext(reading)
    return memory.figures()


async def publishes_waiting(client: Client, stream: str, _: int) -> Figures:
    """Far more publishes at once than the window has room for."""
    memory = Memory()
    value = bytes(250)
    async with asyncio.TaskGroup() as publishes:
        for _number in range(WAITING):
            publishes.create_task(client.publish(stream, value))
    return memory.figures() | {"items": WAITING}


async def subscriptions_idle(client: Client, stream: str, _: int) -> Figures:
    """Many subscriptions that nothing comes for."""
    memory = Memory()
    async with _subscribed(client, stream, StartAt.new_only()):
        return memory.figures() | {"items": SUBSCRIPTIONS}


async def subscriptions_busy(client: Client, stream: str, messages: int) -> Figures:
    """Many subscriptions with more to read than fits, that nobody reads; then all are read."""
    memory = Memory()
    async with _subscribed(client, stream, StartAt.earliest()) as subscriptions:
        await _settled(subscriptions)
        figures = memory.figures() | {"buffered": _buffered(subscriptions)}
        count = min(READ_EACH, messages)
        served = await asyncio.gather(*(_is_served(each, count) for each in subscriptions))
    return figures | {"items": SUBSCRIPTIONS, "starved": served.count(False)}


class _subscribed:  # noqa: N801 - used as a function
    """Many subscriptions to one partition, all accepted by the server."""

    def __init__(self, client: Client, stream: str, start: StartAt) -> None:
        self._client, self._stream, self._start = client, stream, start
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> list[Subscription]:
        subscriptions = [
            self._client.subscribe(self._stream, partition=0, start=self._start)
            for _ in range(SUBSCRIPTIONS)
        ]
        for subscription in subscriptions:
            await self._stack.enter_async_context(subscription)
        return subscriptions

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()


async def _is_served(reading: Subscription, messages: int) -> bool:
    try:
        async with asyncio.timeout(_BOUND):
            for _ in range(messages):
                await anext(reading)
    except TimeoutError:
        return False
    return True


async def _settled(subscriptions: list[Subscription]) -> None:
    """Wait until no buffer grows any more."""
    before = -1
    async with asyncio.timeout(_BOUND):
        while True:
            held = _buffered(subscriptions)
            if held == before:
                return
            before = held
            await asyncio.sleep(_SETTLED)


def _buffered(subscriptions: list[Subscription]) -> int:
    return sum(each.statistics().buffered_bytes for each in subscriptions)


SCENARIOS: Final[dict[str, Callable[[Client, str, int], Coroutine[None, None, Figures]]]] = {
    "reader-behind": reader_behind,
    "publishes-waiting": publishes_waiting,
    "subscriptions-idle": subscriptions_idle,
    "subscriptions-busy": subscriptions_busy,
}


async def measure(scenario: str, servers: str, stream: str, messages: int) -> Figures:
    """Measure one scenario with a client of its own."""
    window = WINDOW if scenario == "publishes-waiting" else ClientOptions().max_in_flight
    options = ClientOptions(max_in_flight=window, publish_timeout=_BOUND, call_timeout=_BOUND)
    async with Client(servers, options=options) as client:
        return await SCENARIOS[scenario](client, stream, messages)


def main(words: list[str] | None = None) -> None:
    """Do what the words say."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scenario", choices=tuple(SCENARIOS))
    parser.add_argument("--servers", required=True)
    parser.add_argument("--stream", required=True)
    parser.add_argument("--messages", type=int, required=True)
    given = parser.parse_args(words)
    figures = asyncio.run(measure(given.scenario, given.servers, given.stream, given.messages))
    version = importlib.metadata.version("liftbridge-aio")
    sys.stdout.write(json.dumps({"client": "ours", "version": version, **figures}) + "\n")


if __name__ == "__main__":
    main()
