"""However a test ends, its broker and client are closed and nothing of them is left."""

from __future__ import annotations

import threading
from typing import Final

import pytest

pytest_plugins = ["pytester"]

# The loop outlives each test, so that the fixture sees what the test and its client left behind.
ARGUMENTS: Final = (
    "-Werror",
    "-pno:cacheprovider",
    "--asyncio-mode=auto",
    "-oasyncio_default_fixture_loop_scope=module",
    "-oasyncio_default_test_loop_scope=module",
)
NOTHING_IS_LEFT: Final = """
import asyncio
import socket

import pytest

addresses = []

@pytest.fixture(autouse=True)
async def nothing_is_left():
    before = asyncio.all_tasks() - {asyncio.current_task()}
    yield
    assert asyncio.all_tasks() - {asyncio.current_task()} == before
    host, _, port = addresses.pop().rpartition(":")
    with socket.socket() as prober:
        assert prober.connect_ex((host, int(port))) != 0

@pytest.fixture(autouse=True)
def remember(nothing_is_left, liftbridge_broker):
    addresses.append(liftbridge_broker.address)
"""
ASYNC_TESTS: Final = """
async def busy(client):
    await client.create_stream("orders")
    async with client.subscribe("orders") as orders:
        await client.publish_async("orders", b"bread")
        async for order in orders:
            raise ValueError("spoilt")

async def test_that_fails(liftbridge_client):
    await busy(liftbridge_client)

async def test_that_is_cancelled(liftbridge_client):
    asyncio.get_running_loop().call_later(0.01, asyncio.current_task().cancel)
    while True:
        await liftbridge_client.ping()

async def test_that_is_cut_off_by_its_broker(liftbridge_client, liftbridge_broker):
    await liftbridge_client.create_stream("orders")
    await liftbridge_broker.stop()
    await liftbridge_client.publish("orders", b"bread", timeout=0.1)

async def test_that_closes_the_client_itself(liftbridge_client):
    await liftbridge_client.aclose()
    await liftbridge_client.publish("orders", b"bread")
"""
SYNC_TEST: Final = """
from liftbridge_aio import Client

def test_that_fails(liftbridge_broker, liftbridge_run):
    async def fail():
        async with Client(liftbridge_broker.address) as client:
            await client.create_stream("orders")
            raise ValueError("spoilt")

    liftbridge_run(fail())
"""


def test_nothing_is_left_of_async_tests_that_end_badly(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(NOTHING_IS_LEFT + ASYNC_TESTS)
    result = pytester.runpytest_inprocess(*ARGUMENTS)
    result.assert_outcomes(failed=4)


def test_nothing_is_left_of_a_sync_test_that_ends_badly(pytester: pytest.Pytester) -> None:
    threads = threading.active_count()
    pytester.makepyfile(SYNC_TEST)
    result = pytester.runpytest_inprocess("-Werror", "-pno:cacheprovider", "-pno:asyncio")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["E * ValueError: spoilt"])
    assert threading.active_count() == threads
