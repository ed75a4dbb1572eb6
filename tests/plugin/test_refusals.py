"""Unsupported setups are refused with one line of advice."""

from __future__ import annotations

from typing import Final

import pytest

pytest_plugins = ["pytester"]

NO_CACHE: Final = ("-Werror", "-pno:cacheprovider")
ASYNCIO: Final = (*NO_CACHE, "-oasyncio_default_fixture_loop_scope=function")
ANYIO: Final = (*NO_CACHE, "-pno:asyncio")

ON_TRIO: Final = """
@pytest.fixture
def anyio_backend():
    return "trio"

@pytest.mark.anyio
async def test(liftbridge_broker): ...
"""

SIMULATION: Final = """
import sys
sys.modules["simloop"] = sys.modules["liftbridge_aio.testing.simulation.world"] = None

async def test(liftbridge_simulation): ...
"""

REFUSED: Final = {
    "a simulation without its library": (
        (*ANYIO, "--liftbridge-seed=1"),
        SIMULATION,
        (
            "the simulation needs Python 3.12 or newer and simloop (*):"
            " pip install 'liftbridge-aio[simulation]'"
        ),
    ),
    "a simulation in a sync test": (
        (*ANYIO, "--liftbridge-seed=1"),
        "def test(liftbridge_simulation): ...",
        "liftbridge_simulation needs an async test that has it as an argument",
    ),
    "a client in a sync test": (
        ASYNCIO,
        "def test(liftbridge_client): ...",
        (
            "liftbridge_client needs an async test, because a client belongs to one event loop;"
            " a sync test may use liftbridge_broker.address with a client of its own"
        ),
    ),
    "liftbridge_run in an async test": (
        (*ASYNCIO, "--asyncio-mode=auto"),
        "async def test(liftbridge_run): ...",
        "liftbridge_run is for sync tests; an async test awaits the coroutine itself",
    ),
    "an async test that nobody runs": (
        ASYNCIO,
        "async def test(liftbridge_broker): ...",
        (
            "no plugin runs this async test: mark it with pytest.mark.asyncio or pytest.mark.anyio,"
            " or switch on the auto mode of pytest-asyncio or anyio"
        ),
    ),
    "trio": (
        ANYIO,
        ON_TRIO,
        (
            "liftbridge_aio runs on asyncio, not on trio; run these tests on asyncio only,"
            " with a fixture `anyio_backend` that returns 'asyncio'"
        ),
    ),
    "both plugins at once": (
        (*ASYNCIO, "--asyncio-mode=auto"),
        ON_TRIO.replace("trio", "asyncio"),
        (
            "pytest-asyncio runs this test, and anyio's plugin would run its async fixtures in"
            " another event loop: use one of the two, for example by asyncio_mode=strict"
        ),
    ),
    "an argument that the broker does not know": (
        ANYIO,
        "@pytest.mark.liftbridge_broker(cursor_partitions=3)\ndef test(liftbridge_broker): ...",
        (
            "@pytest.mark.liftbridge_broker: EmbeddedBroker.__init__() got an unexpected keyword"
            " argument 'cursor_partitions'*"
        ),
    ),
    "an option that makes no sense": (
        (*ANYIO, "--anyio-mode=auto"),
        ON_TRIO.replace("trio", "asyncio").replace(
            "@pytest.mark.anyio\nasync def test(liftbridge_broker)",
            "@pytest.mark.liftbridge_client(ack_timeout=-1)\nasync def test(liftbridge_client)",
        ),
        "@pytest.mark.liftbridge_client: ack_timeout *",
    ),
    "an argument without a name": (
        ANYIO,
        "@pytest.mark.liftbridge_broker(3)\ndef test(liftbridge_broker): ...",
        "@pytest.mark.liftbridge_broker takes arguments by name only",
    ),
    "a broker in a live test": (
        (*ANYIO, "--liftbridge-address=127.0.0.1:9292"),
        "@pytest.mark.liftbridge_live\ndef test(liftbridge_broker): ...",
        "a test marked liftbridge_live runs on a real server and cannot use liftbridge_broker",
    ),
    "a cluster in a live test": (
        (*ANYIO, "--liftbridge-address=127.0.0.1:9292"),
        "@pytest.mark.liftbridge_live\ndef test(liftbridge_cluster): ...",
        "a test marked liftbridge_live runs on a real server and cannot use liftbridge_cluster",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_refusal_says_what_to_do(pytester: pytest.Pytester, what: str) -> None:
    arguments, code, reason = REFUSED[what]
    pytester.makepyfile(f"import pytest\n\n{code}\n")
    result = pytester.runpytest_inprocess(*arguments)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([reason.replace("[", "[[]")])
    result.stdout.no_fnmatch_line("*Traceback*")
