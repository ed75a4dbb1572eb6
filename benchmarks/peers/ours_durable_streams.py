"""Our client of Durable Streams: `python -m benchmarks.peers.ours_durable_streams consume|publish`.

Beside the flags that all programs have: `--api iterate|batches` for reading.
"""

from __future__ import annotations

import argparse
import asyncio
import time

from benchmarks.peers import measuring
from benchmarks.peers.durable_streams_items import (
    IN_FLIGHT,
    JSON,
    batch_items,
    item,
    read_again_and_again,
    url,
)
from benchmarks.peers.measuring import WARM_UP, Outcome, Settings, Watch
from liftbridge_aio.durable_streams import DurableStream, IdempotentProducer


async def publish(settings: Settings) -> Outcome:
    """Append one at a time, or by the idempotent producer, which makes batches."""
    async with DurableStream(url(settings), content_type=JSON) as stream:
        await stream.create()
        if settings.window == 1:
            await _one_by_one(stream, settings, WARM_UP)
            watch = Watch()
            took = await _one_by_one(stream, settings, settings.messages)
            outcome = watch.stop(settings.messages)
            outcome.latencies["latency"] = took
            return outcome
        async with IdempotentProducer(
            stream, "bench", max_batch_items=batch_items(settings), max_in_flight=IN_FLIGHT
        ) as producer:
            await _produce(producer, settings, WARM_UP)
            watch = Watch()
            await _produce(producer, settings, settings.messages)
            return watch.stop(settings.messages)


async def _one_by_one(stream: DurableStream, settings: Settings, messages: int) -> list[int]:
    """Append, wait for the answer, append the next; the nanoseconds of each."""
    value = item(settings)
    took = []
    for _ in range(messages):
        began = time.monotonic_ns()
        await stream.append(value)
        took.append(time.monotonic_ns() - began)
    return took


async def _produce(producer: IdempotentProducer, settings: Settings, messages: int) -> None:
    value = item(settings)
    for _ in range(messages):
        await producer.append_async(value)
    await producer.flush()


async def consume(settings: Settings, *, by_batches: bool) -> Outcome:
    """Read what the stream holds."""
    async with DurableStream(url(settings)) as stream:

        async def read() -> int:
            received = 0
            if by_batches:
                async for batch in stream.read().batches():
                    received += len(batch.items)
            else:
                async for _ in stream.read():
                    received += 1
            return received

        return await read_again_and_again(settings, read)


def main(words: list[str] | None = None) -> None:
    """Do what the words say and print one line of JSON."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--api", choices=("iterate", "batches"), default="iterate")
    own, common = parser.parse_known_args(words)
    by_batches = own.api == "batches"
    measuring.main(
        "ours-durable-streams",
        "liftbridge-aio",
        {
            "consume": lambda settings: asyncio.run(consume(settings, by_batches=by_batches)),
            "publish": lambda settings: asyncio.run(publish(settings)),
        },
        common,
    )


if __name__ == "__main__":
    main()
