"""The programs of docs/examples run as they stand, on an empty broker."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest

from liftbridge_aio import Client
from liftbridge_aio.broker import EmbeddedBroker
from support.markdown import ROOT

pytest_plugins = ["pytester"]

EXAMPLES: Final = ROOT / "docs" / "examples"
BOUND: Final = 30.0
ENDING: Final = {
    "failover.py": "before after",
    "ledger.py": "2 entry of writer",
    "publisher.py": "eve: rolls at offset 2 of orders",
    "tracing.py": "bread under the same trace: True",
    "typed_values.py": "2 invoices, in all 7",
}
"""The last lines of programs that end."""


@pytest.fixture
async def broker() -> AsyncIterator[EmbeddedBroker]:
    async with EmbeddedBroker(cursors_partitions=3) as running:
        yield running


async def started(example: str, broker: EmbeddedBroker) -> Process:
    environment = {**os.environ, "LIFTBRIDGE_SERVERS": broker.address, "PYTHONWARNINGS": "error"}
    path = str(EXAMPLES / example)
    return await asyncio.create_subprocess_exec(
        sys.executable, path, stdout=PIPE, stderr=PIPE, env=environment
    )


@pytest.mark.parametrize("example", ENDING)
async def test_a_program_ends_with_what_it_promises(example: str, broker: EmbeddedBroker) -> None:
    process = await started(example, broker)
    async with asyncio.timeout(BOUND):
        output, complaints = await process.communicate()
    assert complaints == b""
    assert process.returncode == 0
    assert output.decode().splitlines()[-1].startswith(ENDING[example])


@pytest.mark.parametrize(
    ("example", "end", "code", "line"),
    [
        ("worker.py", signal.SIGTERM, 0, b"handled bread\n"),
        ("tail.py", signal.SIGINT, 130, b"0 0 bread\n"),
    ],
)
async def test_a_program_that_goes_on_stops_in_order(
    example: str, end: signal.Signals, code: int, line: bytes, broker: EmbeddedBroker
) -> None:
    async with Client(broker.address) as client:
        await client.create_stream("orders", partitions=3)
        await client.publish("orders", b"bread")
        process = await started(example, broker)
        assert process.stdout is not None
        async with asyncio.timeout(BOUND):
            assert await process.stdout.readline() == line
            process.send_signal(end)
            _, complaints = await process.communicate()
        assert complaints == b""
        assert process.returncode == code
        if example == "worker.py":
            assert await client.fetch_cursor("__group:billing", "orders", 0) == 0


def test_the_file_of_tests_passes(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(Path(EXAMPLES, "test_orders.py").read_text())
    pytester.makeini("[pytest]\nasyncio_mode = auto\n")
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=2)


def test_every_example_is_run_and_listed() -> None:
    files = {path.name for path in EXAMPLES.glob("*.py")}
    assert files == {*ENDING, "worker.py", "tail.py", "test_orders.py"}
    page = (ROOT / "docs" / "examples.md").read_text()
    assert all(f"examples/{name}" in page for name in files)
