"""A broker on a data directory, killed at random moments: what it acked is there ever after."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Final

import pytest

from liftbridge_aio import (
    Ack,
    Client,
    ClientOptions,
    PublishNotSent,
    PublishOutcomeUnknown,
    StartAt,
    StopAt,
    StreamOptions,
)
from liftbridge_aio.retry import Backoff
from liftbridge_aio.testing import History, check_history
from support.faults import eventually
from support.servers.ports import free_ports
from support.servers.process import ServerProcess

ROUNDS: Final = 10
SEED: Final = 4
STREAM: Final = "killed"
PARTITIONS: Final = 2
BOUND: Final = 15.0
"""Seconds that anything may take: a start, the outcomes of a round, the reading at the end."""
OPTIONS: Final = ClientOptions(backoff=Backoff(initial=0.005, maximum=0.02), max_in_flight=128)
SEGMENTS: Final = StreamOptions(segment_max_bytes=32 * 1024)  # so that kills hit rolling, too


class Publishing:
    """Publishes as fast as it goes and records what becomes of each message."""

    def __init__(self, client: Client, history: History, random: Random, number: int) -> None:
        self._client = client
        self._history = history
        self._random = random
        self._round = number
        self._futures: list[asyncio.Future[Ack]] = []
        self.acked = asyncio.Event()
        """Set once the broker has acked something of this round."""

    async def run_until(self, stopped: asyncio.Event) -> None:
        while not stopped.is_set():
            number = len(self._futures)
            partition = number % PARTITIONS
            padding = b"." * self._random.randrange(300)
            value = b"round %d message %d %s" % (self._round, number, padding)
            self._history.sent(value, partition)
            future = await self._client.publish_async(STREAM, value, partition=partition)
            future.add_done_callback(partial(self._settled, value, partition))
            self._futures.append(future)

    def _settled(self, value: bytes, partition: int, future: asyncio.Future[Ack]) -> None:
        match future.exception():
            case None:
                self._history.acked(value, partition)
                self.acked.set()
            case PublishOutcomeUnknown():
                self._history.unknown(value, partition)
            case PublishNotSent():
                self._history.refused(value, partition)
            case _:
                pass  # `outcomes` fails for it

    async def outcomes(self) -> None:
        """Wait for all outcomes; any other error fails the test."""
        async with asyncio.timeout(BOUND):
            results = await asyncio.gather(*self._futures, return_exceptions=True)
        expected = (Ack, PublishOutcomeUnknown, PublishNotSent)
        assert [result for result in results if not isinstance(result, expected)] == []


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[ServerProcess]:
    [port] = free_ports(1)
    command = (sys.executable, "-m", "liftbridge_aio", "broker", "--port", str(port))
    process = ServerProcess((*command, "--data-dir", tmp_path / "data"), tmp_path, "broker")
    process.start()
    try:
        await eventually(lambda: process.log)  # its address, once it takes connections
        yield process
    finally:
        process.kill()


@pytest.mark.timeout(120)
async def test_nothing_acked_is_lost_over_ten_kills(broker: ServerProcess) -> None:
    random = Random(SEED)
    history = History(time.monotonic)
    async with Client(broker.log.splitlines()[0], options=OPTIONS) as client:
        await client.create_stream(STREAM, partitions=PARTITIONS, options=SEGMENTS)
        for number in range(ROUNDS):
            await one_round(broker, client, history, random, number)
        await read_everything(client, history)
    report = check_history(history)
    report.raise_for_defects()
    assert report.total.acked > ROUNDS
    assert report.total.unknown > 0, "no kill came while something was on its way"


async def one_round(
    broker: ServerProcess, client: Client, history: History, random: Random, number: int
) -> None:
    """Publish for a while, kill the broker in the middle of it, and start it again."""
    publishing = Publishing(client, history, random, number)
    killed = asyncio.Event()
    running = asyncio.create_task(publishing.run_until(killed))
    async with asyncio.timeout(BOUND):
        await publishing.acked.wait()
    await asyncio.sleep(random.uniform(0.05, 0.2))  # the random moment
    await asyncio.to_thread(broker.kill)
    killed.set()
    await asyncio.to_thread(broker.start)
    if number % 7 == 3:
        await asyncio.sleep(random.uniform(0.2, 0.7))  # somewhere in the recovery
        await asyncio.to_thread(broker.kill)
        await asyncio.to_thread(broker.start)
    async with asyncio.timeout(BOUND):
        await running
    await publishing.outcomes()


async def read_everything(client: Client, history: History) -> None:
    for partition in range(PARTITIONS):
        async with (
            asyncio.timeout(BOUND),
            client.subscribe(STREAM, partition, StartAt.earliest(), StopAt.latest()) as messages,
        ):
            async for message in messages:
                history.delivered(message.value, partition, offset=message.offset)
        history.finished(partition)
