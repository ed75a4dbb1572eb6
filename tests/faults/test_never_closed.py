"""A program that ends without closing its client ends all the same, whatever that was doing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import liftbridge_aio

DATA_PATHS: Final = ["lane"]
PROGRAM: Final = """
import asyncio
from liftbridge_aio import Client, StartAt
from liftbridge_aio.broker import EmbeddedBroker

async def published(client):
    await client.publish("s", b"acked")

async def publishing(client):
    for number in range(100):
        await client.publish_async("s", b"not waited for")

async def reading(client):
    await client.publish("s", b"message")
    client.kept = client.subscribe("s", start=StartAt.earliest())
    await anext(client.kept)

async def member(client):
    client.kept = client.group("g", ["s"], start=StartAt.earliest())
    await client.kept.__aenter__()
    await client.publish("s", b"message")
    await anext(client.kept)

async def main(work):
    async with EmbeddedBroker(cursors_partitions=1) as broker:
        client = Client(broker.address)
        await client.connect()
        await client.create_stream("s")
        await work(client)
    return client  # so that nobody collects it before the loop ends

for work in (published, publishing, reading, member):
    asyncio.run(main(work))
    print(work.__name__)
"""


def test_its_loop_ends() -> None:
    package = Path(liftbridge_aio.__file__).parents[1]
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=os.environ | {"PYTHONPATH": str(package)},
        capture_output=True,
        text=True,
        timeout=40,
        check=False,
    )
    assert ended.stdout.split() == ["published", "publishing", "reading", "member"], ended.stderr
    assert ended.returncode == 0
