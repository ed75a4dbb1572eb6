"""Whole lives of clients in asyncio's debug mode and Python's development mode: nothing is said."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import liftbridge_aio


def run_python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        cwd=Path(liftbridge_aio.__file__).parent.parent,
    )


IMPORT_EVERYTHING = """
import importlib, pkgutil
from importlib.util import find_spec
import liftbridge_aio
for module in pkgutil.walk_packages(liftbridge_aio.__path__, "liftbridge_aio."):
    is_optional = "testing.simulation." in module.name and find_spec("simloop") is None
    if not module.name.endswith("__main__") and not is_optional:
        importlib.import_module(module.name)
"""

A_LIFE_WITH_FAULTS = """
import asyncio, gc, logging
from liftbridge_aio import Client, ClientOptions, PublishOutcomeUnknown, StartAt
from liftbridge_aio.broker import EmbeddedBroker
from liftbridge_aio.testing import FaultProxy

async def main():
    asyncio.get_running_loop().slow_callback_duration = 60.0  # how fast it is here is no matter
    logging.getLogger("liftbridge_aio").setLevel(logging.ERROR)
    async with EmbeddedBroker() as broker, FaultProxy(broker.address) as proxy:
        options = ClientOptions(address_map=lambda _: proxy.address, close_timeout=0.5)
        async with Client(proxy.address, options=options) as client:
            await client.create_stream("s", partitions=2)
            async with client.subscribe("s", start=StartAt.earliest()) as subscription:
                futures = [await client.publish_async("s", b"%d" % n) for n in range(500)]
                await anext(subscription)
                await proxy.cut()
                await asyncio.gather(*futures, return_exceptions=True)
                while True:
                    try:
                        await client.publish("s", b"last")
                        break
                    except PublishOutcomeUnknown:
                        pass
                async for message in subscription:
                    if message.value == b"last":
                        break
            async for message in client.subscribe("s", start=StartAt.earliest()):
                break
            await client.set_cursor("c", "s", 1, 5)
            await proxy.cut()
            assert await client.fetch_cursor("c", "s", 1) == 5
            await broker.restart()
            await client.publish("s", b"after")
            async with client.subscribe("s", start=StartAt.latest()) as subscription:
                assert (await anext(subscription)).value == b"after"
            proxy.freeze()
            future = await client.publish_async("s", b"never", partition=1)
        assert future.exception()
        gc.collect()

asyncio.run(main())
"""


A_LIFE_IN_GROUPS = """
import asyncio, gc, logging
from liftbridge_aio import Client, ClientOptions, Retry, StartAt
from liftbridge_aio.broker import EmbeddedBroker

EARLIEST = StartAt.earliest()

async def main():
    asyncio.get_running_loop().slow_callback_duration = 60.0  # how fast it is here is no matter
    logging.getLogger("liftbridge_aio").setLevel(logging.ERROR)
    async with EmbeddedBroker() as broker:
        async with Client(broker.address, options=ClientOptions(close_timeout=1.0)) as client:
            await client.create_stream("s", partitions=2)
            await client.publish_many("s", [b"%d" % n for n in range(20)])
            async with client.subscribe("s", start=EARLIEST, cursor="c") as durable:
                async for messages in durable.batches(20):
                    break
                await durable.commit()
                await broker.faults.cut_links(reset=True)
                await durable.seek({0: 0, 1: 0})
                await anext(durable)
            async with client.group("g", ["s"], start=EARLIEST, commit_interval=0.01) as group:
                await anext(group)
                async with client.group("g", ["s"], start=EARLIEST) as other:
                    await broker.faults.cut_links(reset=True)
                    while not (len(group.assignment) == len(other.assignment) == 1):
                        await asyncio.sleep(0.01)
                    waiting = asyncio.create_task(anext(other))
                    await asyncio.sleep(0)
                    waiting.cancel()
                await group.commit()
                await broker.restart()
                await client.publish("s", b"after", retry=Retry())
            unread = client.subscribe("s", start=EARLIEST)
            await anext(unread)
            reading = asyncio.create_task(anext(client.subscribe("s")))
            future = await client.publish_async("s", b"last")
        await asyncio.gather(reading, return_exceptions=True)
        assert await future
        del unread
        gc.collect()

asyncio.run(main())
"""


@pytest.mark.parametrize(
    "code",
    [IMPORT_EVERYTHING, A_LIFE_WITH_FAULTS, A_LIFE_IN_GROUPS],
    ids=["imports", "life", "groups"],
)
def test_quiet_in_development_mode(code: str) -> None:
    """No warning, no unclosed socket, no exception that nobody retrieved."""
    done = run_python(code)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
