"""A broker on a data directory, killed at random moments: what it acked is there ever after."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from typing import Final

import pytest

from liftbridge_aio import (
    Client,
    ClientOptions,
    StreamOptions,
)
from liftbridge_aio.retry import Backoff
from support.faults import eventually
from support.servers.ports import free_ports
from support.servers.process import ServerProcess
from support.traffic import flowing

ROUNDS: Final = 10
SEED: Final = 4
STREAM: Final = "killed"
AT_ONCE: Final = 64
"""Messages that are on their way at a time."""
OPTIONS: Final = ClientOptions(backoff=Backoff(initial=0.005, maximum=0.02))
SEGMENTS: Final = StreamOptions(segment_max_bytes=32 * 1024)  # so that kills hit rolling, too


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
    async with Client(broker.log.splitlines()[0], options=OPTIONS) as client:
        await client.create_stream(STREAM, options=SEGMENTS)
        async with flowing(client, STREAM, publishers=AT_ONCE, size=200) as flow:
            for number in range(ROUNDS):
                await flow.more()
                await asyncio.sleep(random.uniform(0.05, 0.2))  # the random moment
                await restart(broker)
                if number % 7 == 3:
                    await asyncio.sleep(random.uniform(0.2, 0.7))  # somewhere in the recovery
                    await restart(broker)
    assert flow.unknown, "no kill came while something was on its way"
    assert not flow.lost


async def restart(broker: ServerProcess) -> None:
    await asyncio.to_thread(broker.kill)
    await asyncio.to_thread(broker.start)
