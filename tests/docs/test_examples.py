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

import aiohttp
import pytest

from liftbridge_aio import Client
from liftbridge_aio.broker import EmbeddedBroker
from support.markdown import ROOT
from support.web.event_source import browse
from support.web.web_process import ENDS_WITH, running

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
WEB: Final = {"fastapi": "orders_fastapi.py", "aiohttp": "orders_aiohttp.py"}
SPARK: Final = "totals_spark.py"
"""Which tests/spark runs."""


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
        ("worker.py", signal.SIGINT, 0, b"handled bread\n"),
        ("queue_worker.py", signal.SIGINT, 0, b"handled bread\n"),
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
            rest, complaints = await process.communicate()
        assert complaints == b""
        assert process.returncode == code
        assert rest == (b"" if example == "tail.py" else b"stopped in order\n")
        if example == "worker.py":
            assert await client.fetch_cursor("__group:billing", "orders", 0) == 0


@pytest.mark.parametrize("framework", WEB)
async def test_a_service_takes_orders_and_sends_them(
    framework: str, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    code = (EXAMPLES / WEB[framework]).read_text()
    async with (
        running(framework, broker.address, tmp_path, code) as service,
        aiohttp.ClientSession(service.url) as http,
        asyncio.timeout(BOUND),
    ):
        path, body = ("/orders", b"bread") if framework == "aiohttp" else ("/orders/bread", None)
        async with http.post(path, data=body) as answer:
            assert (answer.status, await answer.json()) == (201, {"offset": 0})
        async with browse(f"{service.url}/orders") as events:
            assert (await anext(events)).data == "bread"
        if framework == "fastapi":
            async with http.get("/") as page:
                assert 'new EventSource("/orders")' in await page.text()
        sold = None
        while sold != {"bread": 1}:
            async with http.get("/sold") as answer:
                sold = await answer.json()
        service.tell_to_end()
        assert await service.code() == ENDS_WITH[framework]


def test_the_file_of_tests_passes(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(Path(EXAMPLES, "test_orders.py").read_text())
    pytester.makeini("[pytest]\nasyncio_mode = auto\n")
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=2)


def test_every_example_is_run_and_listed() -> None:
    files = {path.name for path in EXAMPLES.glob("*.py")}
    others = {"worker.py", "queue_worker.py", "tail.py", "test_orders.py", SPARK}
    assert files == {*ENDING, *WEB.values(), *others}
    page = (ROOT / "docs" / "examples.md").read_text()
    assert all(f"examples/{name}" in page for name in files)
