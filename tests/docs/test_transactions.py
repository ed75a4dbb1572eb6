"""The page about transactions: its loop survives being killed, its tables are those of the code."""

from __future__ import annotations

import asyncio
import os
import random
import re
import signal
import sys
import textwrap
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from liftbridge_aio import Client
from liftbridge_aio.broker import EmbeddedBroker
from liftbridge_aio.transactions import CheckpointStream, ClaimedLog, Phase, errors
from liftbridge_aio.transactions.core.transaction import PHASES
from support.markdown import ROOT, blocks, names, table

if TYPE_CHECKING:
    from conftest import StartRealServer

PAGE: Final = ROOT / "docs" / "transactions.md"
KILLS: Final = {"embedded": 5, "real": 20}
"""Kills of the loop, by the broker."""
MOST: Final = 6
"""Messages in the store of one life, at most: a claim, a new producer id, four transactions."""
BOUND: Final = 100.0
PROGRAM: Final = """
import asyncio, os, sys
import liftbridge_aio.transactions, liftbridge_aio._client.parts
from liftbridge_aio import Client

def invoice(order):
    return order.value

async def main():
    async with Client({address!r}) as client:
{loop}

for _ in sys.stdin:
    process = os.fork()
    if not process:
        asyncio.run(main())
    print(process, flush=True)
    os.waitpid(process, 0)
    print("ended", flush=True)
"""
"""Forks a process with the loop for each line that it reads: to import everything takes longer than
what is killed."""


def test_the_table_of_phases_is_that_of_the_code() -> None:
    shown = {names(phase)[0]: set(names(after)) for phase, _, after in table(PAGE, "Phase")}
    following: dict[str, set[str]] = {phase.name: set() for phase in Phase}
    for (phase, _), after in PHASES.items():
        following[phase.name] |= {after.name} - {phase.name}
    assert shown == following


def test_the_errors_of_publishing_are_shown() -> None:
    shown = [name for row in table(PAGE, "Error") for name in names(row[0])]
    shown = [name for name in shown if hasattr(errors, name)]
    assert shown == ["TransactionAborted", "CommitInDoubt", "ProducerFenced"]
    assert all(issubclass(getattr(errors, name), errors.TransactionError) for name in shown)


@pytest.fixture(params=KILLS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def address(kind: str, start_real_server: StartRealServer) -> AsyncIterator[str]:
    if kind == "real":
        yield start_real_server().address
        return
    async with EmbeddedBroker() as running:
        yield running.address


@pytest.fixture
async def client(address: str) -> AsyncIterator[Client]:
    async with Client(address) as client:
        for stream in ("orders", "invoices"):
            await client.create_stream(stream, partitions=2)
        yield client


@pytest.fixture
async def program(tmp_path: Path, address: str) -> AsyncIterator[Process]:
    """The loop of the page, with batches that are smaller and come sooner."""
    block, _ = [block for block in blocks(PAGE, "python") if block.setup == "transactions"]
    assert "max_size=100, wait=0.5" in block.code
    loop = block.code.replace("max_size=100, wait=0.5", "max_size=3, wait=0.01")
    path = tmp_path / "invoicer.py"
    code = PROGRAM.format(loop=textwrap.indent(loop, " " * 8), address=address)
    path.write_text(code)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(path)), stdin=PIPE, stdout=PIPE, stderr=DEVNULL
    )
    yield process
    process.kill()
    await process.wait()


async def values(client: Client, stream: str) -> list[bytes]:
    reading = client.read(stream, committed=True)
    return [message.value async for message in reading]


async def test_the_loop_is_killed_many_times(client: Client, program: Process, kind: str) -> None:
    """Each order has one invoice in the end, and none has two at any time."""
    chance = random.Random(20)
    producer = client.producer()
    orders: list[bytes] = []
    store = CheckpointStream("checkpoints").stream_of("invoicer")
    log = await ClaimedLog.open(client, store)
    stored = log.claim
    assert program.stdin is not None
    assert program.stdout is not None
    async with asyncio.timeout(BOUND):
        for life in range(KILLS[kind] + 1):
            async with producer.transaction() as transaction:
                for _ in range(3 * MOST):
                    orders.append(b"%d" % len(orders))
                    await transaction.publish("orders", orders[-1], orders[-1])
            orders.append(b"%d" % len(orders))
            await producer.publish("orders", orders[-1], partition=life % 2)
            program.stdin.write(b"\n")
            process = int(await program.stdout.readline())
            enough = stored + chance.randint(1, MOST)
            while stored < enough:
                await asyncio.sleep(0.002)
                stored = (await client.fetch_partition_metadata(store, 0)).newest_offset
            if life < KILLS[kind]:
                os.kill(process, signal.SIGKILL)
                assert await program.stdout.readline() == b"ended\n"
            found = Counter(await values(client, "invoices"))
            assert found.total() == len(found), f"repeated after {life} kills"
        while len(found) < len(orders):
            await asyncio.sleep(0.05)
            found = Counter(await values(client, "invoices"))
        os.kill(process, signal.SIGKILL)
    assert sorted(found.elements()) == sorted(orders)


def test_the_page_says_how_often_it_is_killed() -> None:
    assert re.search(r"test of this page does that twenty\s+times", PAGE.read_text())
