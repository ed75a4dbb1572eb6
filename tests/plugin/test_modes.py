"""The examples pass under both plugins for async tests, in all their modes and loop scopes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

# pytester forgets what is imported during a run; these register themselves and are imported once.
from liftbridge_aio.broker import EmbeddedBroker  # noqa: F401 - see above

pytest_plugins = ["pytester"]

EXAMPLES: Final = Path(__file__).parent / "examples"
ASYNC: Final = (EXAMPLES / "test_orders.py").read_text()
SYNC: Final = (EXAMPLES / "test_service.py").read_text()
ASYNC_TESTS: Final = 6
SYNC_TESTS: Final = 2
CLUSTER: Final = (EXAMPLES / "test_cluster.py").read_text()
CLUSTER_TESTS: Final = 3

STRICT: Final = (
    "--strict-markers",
    "--strict-config",
    "-Werror",
    "-pno:cacheprovider",
    "-oasyncio_default_fixture_loop_scope=function",
)
NO_ASYNCIO: Final = ("--strict-markers", "-Werror", "-pno:cacheprovider", "-pno:asyncio")
NO_PLUGINS: Final = (*NO_ASYNCIO, "-pno:anyio")
ON_ASYNCIO: Final = """
import pytest

@pytest.fixture
def anyio_backend():
    return "asyncio"
"""
ASYNCIO_ON_UVLOOP: Final = """
import uvloop

def pytest_asyncio_loop_factories():
    return {"uvloop": uvloop.new_event_loop}
"""
ANYIO_ON_UVLOOP: Final = """
import pytest

@pytest.fixture
def anyio_backend():
    return ("asyncio", {"use_uvloop": True})
"""
UVLOOP_TEST: Final = """

import asyncio
import uvloop

async def test_on_uvloop(liftbridge_client) -> None:
    assert isinstance(asyncio.get_running_loop(), uvloop.Loop)
    await liftbridge_client.ping()
"""
OWN_FIXTURE: Final = """

@{fixture}
async def orders(liftbridge_client):
    await liftbridge_client.create_stream("orders")
    yield "orders"
    await liftbridge_client.delete_stream("orders")

async def test_a_fixture_of_their_own(orders, liftbridge_client) -> None:
    assert (await liftbridge_client.publish(orders, b"eggs")).offset == 0
"""
PLAIN_FIXTURE: Final = OWN_FIXTURE.format(fixture="pytest.fixture")
ASYNCIO_FIXTURE: Final = "\nimport pytest_asyncio\n" + OWN_FIXTURE.format(
    fixture="pytest_asyncio.fixture"
)
SESSION_FIXTURE: Final = ASYNCIO_FIXTURE.replace("ture\n", 'ture(loop_scope="session")\n')
IN_CLASS: Final = """

TestRestarts.pytestmark = [pytest.mark.asyncio(loop_scope="class")]
"""
OF_UNITTEST: Final = """
import unittest

import pytest

from liftbridge_aio import Client

class TestOrders(unittest.IsolatedAsyncioTestCase):
    @pytest.fixture(autouse=True)
    def take(self, liftbridge_broker) -> None:
        self.address = liftbridge_broker.address

    async def test_async(self) -> None:
        async with Client(self.address) as client:
            await client.ping()

    def test_sync(self) -> None:
        assert self.address
"""


@dataclass(frozen=True)
class Mode:
    """A configuration of pytest that users may have."""

    arguments: tuple[str, ...]
    mark: str = ""
    conftest: str = ""
    more: str = PLAIN_FIXTURE

    @property
    def file(self) -> str:
        mark = f"\npytestmark = pytest.mark.{self.mark}\n" if self.mark else ""
        return ASYNC + mark + self.more


MODES: Final = {
    "asyncio, auto": Mode((*STRICT, "--asyncio-mode=auto")),
    "asyncio, strict": Mode(STRICT, "asyncio", more=ASYNCIO_FIXTURE),
    "asyncio, class": Mode((*STRICT, "--asyncio-mode=auto"), more=IN_CLASS),
    "asyncio, module": Mode(STRICT, 'asyncio(loop_scope="module")', more=""),
    "asyncio, session": Mode(STRICT, 'asyncio(loop_scope="session")', more=SESSION_FIXTURE),
    "asyncio, session by ini": Mode(
        (*STRICT, "--asyncio-mode=auto", "-oasyncio_default_test_loop_scope=session"), more=""
    ),
    "asyncio, uvloop": Mode(
        (*STRICT, "--asyncio-mode=auto"), conftest=ASYNCIO_ON_UVLOOP, more=UVLOOP_TEST
    ),
    "anyio beside pytest-asyncio": Mode(STRICT, "anyio", ON_ASYNCIO),
    "anyio alone": Mode(NO_ASYNCIO, "anyio", ON_ASYNCIO),
    "anyio, auto": Mode((*NO_ASYNCIO, "--anyio-mode=auto"), conftest=ON_ASYNCIO),
    "anyio, uvloop": Mode(NO_ASYNCIO, "anyio", ANYIO_ON_UVLOOP, more=UVLOOP_TEST),
}


@pytest.mark.parametrize("name", MODES)
def test_async_tests_pass(pytester: pytest.Pytester, name: str) -> None:
    mode = MODES[name]
    pytester.makeconftest(mode.conftest)
    pytester.makepyfile(test_orders=mode.file)
    result = pytester.runpytest_inprocess(*mode.arguments)
    result.assert_outcomes(passed=ASYNC_TESTS + mode.more.count("async def test_"))


def test_sync_tests_pass_without_any_plugin(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_service=SYNC)
    pytester.runpytest_inprocess(*NO_PLUGINS).assert_outcomes(passed=SYNC_TESTS)


def test_tests_of_unittest_use_the_broker(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_unittest=OF_UNITTEST)
    result = pytester.runpytest_inprocess(*STRICT, "--asyncio-mode=auto")
    result.assert_outcomes(passed=2)


def test_clusters_work_under_anyio(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(ON_ASYNCIO)
    pytester.makepyfile(test_cluster=CLUSTER)
    result = pytester.runpytest_inprocess(*NO_ASYNCIO, "--anyio-mode=auto")
    result.assert_outcomes(passed=CLUSTER_TESTS)


def test_they_pass_in_workers_of_xdist(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_orders=ASYNC)
    result = pytester.runpytest_subprocess("--asyncio-mode=auto", "-n1", *STRICT)
    result.assert_outcomes(passed=ASYNC_TESTS)
