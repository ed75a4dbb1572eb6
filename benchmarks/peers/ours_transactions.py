"""Our client with transactions as a program to be measured: consume or publish.

Beside the flags that all programs have: `--way`, one of `WAYS`.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable, Coroutine
from typing import Final

import liftbridge_aio.transactions  # noqa: F401 - not while the time is taken
from benchmarks.peers import measuring
from benchmarks.peers.measuring import WARM_UP, CallEnded, Outcome, Settings, Watch
from liftbridge_aio import AckPolicy, Client, ClientOptions, LiftbridgeError, StartAt

TRANSACTION: Final = 1_000
"""Messages of a transaction."""

_MANY: Final = 16_384
_Publish = Callable[[Client, Settings, int], Coroutine[None, None, None]]


async def consume(client: Client, settings: Settings, committed: bool) -> Outcome:
    """Read until as many messages have come as expected."""
    left, following, errors = settings.expected, 0, 0
    watch = Watch()
    async with client.subscribe(
        settings.stream, partition=0, start=StartAt.earliest(), committed=committed
    ) as messages:
        async for message in messages:
            if message.offset < following or not message.value:
                errors += 1
            following = message.offset + 1
            left -= 1
            if not left:
                outcome = watch.stop(settings.expected)
                outcome.errors = errors
                return outcome
    raise CallEnded


async def consume_batches(client: Client, settings: Settings, committed: bool) -> Outcome:
    """Do the same by lists of messages."""
    left, following, errors = settings.expected, 0, 0
    watch = Watch()
    async with client.subscribe(
        settings.stream, partition=0, start=StartAt.earliest(), committed=committed
    ) as messages:
        async for batch in messages.batches():
            for message in batch:
                if message.offset < following or not message.value:
                    errors += 1
                following = message.offset + 1
            left -= len(batch)
            if left <= 0:
                outcome = watch.stop(settings.expected - left)
                outcome.errors = errors
                return outcome
    raise CallEnded


async def plain(client: Client, settings: Settings, count: int) -> None:
    """Publish without a producer."""
    stream, value = settings.stream, settings.value
    for _ in range(count):
        await client.publish_async(stream, value, partition=0, ack_policy=AckPolicy.ALL)
    await client.flush()


async def waiting(client: Client, settings: Settings, count: int) -> None:
    """Publish the same number of messages as transactions need, and wait where they must wait.

    A header of 16 bytes in each; all are stored before a last one is sent and awaited.
    """
    stream, value, headers = settings.stream, settings.value, {"uuid": bytes(16)}
    for _ in range(count // TRANSACTION):
        for _ in range(TRANSACTION):
            await client.publish_async(
                stream, value, headers=headers, partition=0, ack_policy=AckPolicy.ALL
            )
        await client.flush()
        await client.publish(stream, value, headers=headers, partition=0, ack_policy=AckPolicy.ALL)


async def producer(client: Client, settings: Settings, count: int) -> None:
    """Publish committed messages outside of transactions."""
    stream, value = settings.stream, settings.value
    async with client.producer() as publisher:
        for _ in range(count):
            await publisher.publish_async(stream, value, partition=0)
        await client.flush()


def transactions(at_a_time: int) -> _Publish:
    """Return what publishes in so many transactions at a time."""

    async def publish(client: Client, settings: Settings, count: int) -> None:
        stream, value = settings.stream, settings.value
        left = iter(range(count // TRANSACTION))
        async with client.producer() as publisher:

            async def one_after_another() -> None:
                for _ in left:
                    async with publisher.transaction() as transaction:
                        for _ in range(TRANSACTION):
                            await transaction.publish(stream, value, partition=0)

            async with asyncio.TaskGroup() as group:
                for _ in range(at_a_time):
                    group.create_task(one_after_another())

    return publish


_READING: Final = {
    "plain": (consume, False),
    "committed": (consume, True),
    "plain-batches": (consume_batches, False),
    "committed-batches": (consume_batches, True),
}
_PUBLISHING: Final[dict[str, _Publish]] = {
    "plain": plain,
    "waiting": waiting,
    "producer": producer,
    "transactions": transactions(1),
    "transactions-2": transactions(2),
}
WAYS: Final = tuple(dict.fromkeys((*_READING, *_PUBLISHING)))


async def _read(way: str, settings: Settings) -> Outcome:
    reading, committed = _READING[way]
    async with Client(*settings.servers) as client:
        return await reading(client, settings, committed)


async def _publish(way: str, settings: Settings) -> Outcome:
    publish = _PUBLISHING[way]
    options = ClientOptions(max_in_flight=settings.window)
    async with Client(*settings.servers, options=options) as client:
        await publish(client, settings, WARM_UP)
        watch = Watch()
        try:
            await publish(client, settings, settings.messages)
        except (LiftbridgeError, ExceptionGroup):
            outcome = watch.stop(settings.messages)
            outcome.errors = 1
            return outcome
        return watch.stop(settings.messages)


def main(words: list[str] | None = None) -> None:
    """Do what the words say and print one line of JSON."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--way", choices=WAYS, required=True)
    own, common = parser.parse_known_args(words)
    measuring.main(
        "ours",
        "liftbridge-aio",
        {
            "consume": lambda settings: asyncio.run(_read(own.way, settings)),
            "publish": lambda settings: asyncio.run(_publish(own.way, settings)),
        },
        common,
    )


if __name__ == "__main__":
    main()
