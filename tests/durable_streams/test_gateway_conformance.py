"""The gateway passes the published conformance tests of servers, on each Liftbridge."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any, Final

import pytest

from durable_streams.conftest import RunGateway
from support.servers.node import EmbeddedServer, Server
from support.servers.npm_packages import find_node

TESTS: Final = 338
BOUND: Final = 480.0


@pytest.mark.timeout(BOUND + 30)
async def test_the_gateway_behaves_as_published(
    server: Server, run_gateway: RunGateway, durable_streams_packages: Path, tmp_path: Path
) -> None:
    gateway = await run_gateway(server.address)
    await check_suite(durable_streams_packages, gateway.url, tmp_path / "found.json")


@pytest.mark.timeout(BOUND + 30)
async def test_it_does_so_when_no_other_origin_is_allowed(
    embedded_server: EmbeddedServer,
    run_gateway: RunGateway,
    durable_streams_packages: Path,
    tmp_path: Path,
) -> None:
    gateway = await run_gateway(embedded_server.address, "--allow-origin", "self")
    await check_suite(durable_streams_packages, gateway.url, tmp_path / "found.json")


async def check_suite(packages: Path, url: str, report: Path) -> None:
    """Check that all tests pass."""
    found = await run_suite(packages, url, report)
    failed = [
        (each["fullName"], each["failureMessages"])
        for file in found["testResults"]
        for each in file["assertionResults"]
        if each["status"] == "failed"
    ]
    assert failed == []
    assert (found["numPassedTests"], found["numPendingTests"]) == (TESTS, 0)


async def run_suite(packages: Path, url: str, report: Path) -> dict[str, Any]:
    """Run the tests in vitest, and return its report."""
    node, _ = find_node()
    process = await asyncio.create_subprocess_exec(
        *(node, packages / "node_modules/vitest/vitest.mjs", "run", "--testTimeout", "30000"),
        *("--reporter=json", f"--outputFile={report}", "server.conformance.test.mjs"),
        cwd=packages,
        env=os.environ | {"CONFORMANCE_TEST_URL": url, "CONFORMANCE_TEST_SUBSCRIPTIONS": "1"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(BOUND):
            output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert b"report written" in output.lower(), output.decode()
    found: dict[str, Any] = json.loads(await asyncio.to_thread(report.read_text))
    return found
