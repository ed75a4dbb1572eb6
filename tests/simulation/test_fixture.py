"""The fixture `liftbridge_simulation`: the same run from a seed, and failures with a command."""

from __future__ import annotations

import re
import shlex
from typing import Final

import pytest

# pytester forgets what is imported during a run; these are imported once.
from liftbridge_aio.testing.simulation import faults, stand_ins  # noqa: F401 - see above

pytestmark = pytest.mark.virtual_time
pytest_plugins = ["pytester"]

NO_CACHE: Final = ("-Werror", "-pno:cacheprovider")
PLAIN: Final = (*NO_CACHE, "-pno:asyncio", "-pno:anyio")
MODES: Final = {
    "pytest-asyncio, strict": ("-oasyncio_default_fixture_loop_scope=function",),
    "pytest-asyncio, auto": (
        "--asyncio-mode=auto",
        "-oasyncio_default_fixture_loop_scope=function",
    ),
    "anyio": ("-pno:asyncio", "--anyio-mode=auto"),
    "no plugin for async tests": ("-pno:asyncio", "-pno:anyio"),
}

VALUES: Final = """
import asyncio, random, secrets, time, uuid
from time import perf_counter, time as now
from uuid import uuid4

import pytest
from fastapi import Depends, FastAPI
from httpx2 import ASGITransport, AsyncClient

from liftbridge_aio import Client

app = FastAPI()

def in_a_thread():
    time.sleep(5)
    return f"{time.time()} {uuid4()}"

@app.get("/")
def values(value: str = Depends(in_a_thread)):
    return value

@pytest.mark.liftbridge_simulation(seeds=2, seconds=20)
async def test(liftbridge_simulation):
    simulation = liftbridge_simulation
    served = []

    async def serve():
        transport = ASGITransport(app)
        async with (
            Client.from_env() as client,
            AsyncClient(transport=transport, base_url="http://host") as http,
        ):
            while True:
                await client.ping()
                served.append((await http.get("/")).json())
                await asyncio.sleep(1.0)

    simulation.process("web", serve)
    await simulation.inflict_faults()
    assert served
    print("values", simulation.seed, served[-1], now(), perf_counter(), uuid.uuid4(), uuid4(),
          secrets.token_hex(8), random.random(), await asyncio.to_thread(uuid4),
          simulation.chance.random(), simulation.digest)
"""

RESTARTED: Final = """
import asyncio
import pytest

@pytest.mark.liftbridge_simulation(seeds=1, seconds=60)
async def test_it_is_never_started_again(liftbridge_simulation):
    starts = []

    async def work():
        starts.append(liftbridge_simulation.now)
        await asyncio.Event().wait()

    liftbridge_simulation.process("worker", work)
    await liftbridge_simulation.inflict_faults()
    assert len(starts) == 1
"""

FAILING: Final = {
    "an error of a process": (
        """
        async def work():
            raise KeyError("stock")
        liftbridge_simulation.process("worker", work)
        await asyncio.sleep(10)
        """,
        ["*KeyError: 'stock'", "*This ended the process worker."],
    ),
    "a process that does not end": (
        """
        async def work():
            while True:
                try:
                    await asyncio.sleep(1)
                except asyncio.CancelledError:
                    pass
        liftbridge_simulation.process("worker", work)
        await asyncio.sleep(10)
        """,
        ["*told to end, these did not within 30 simulated seconds: worker"],
    ),
    "a condition that stays false": (
        """
        def has_recovered():
            return False
        await liftbridge_simulation.until(has_recovered, within=5)
        """,
        ["*has_recovered was not true within 5 simulated seconds"],
    ),
    "a test that waits for ever": (
        "        await asyncio.Event().wait()",
        ["*seed 1 did not end within 310 s: *test*"],
    ),
    "a name that is taken": (
        """
        liftbridge_simulation.process("n1", asyncio.sleep)
        """,
        ["*there is a process or broker 'n1' already: give this one another name"],
    ),
}


@pytest.mark.parametrize("mode", MODES)
def test_it_runs_whatever_runs_other_async_tests(pytester: pytest.Pytester, mode: str) -> None:
    pytester.makepyfile(RESTARTED.replace("== 1", ">= 1"))
    result = pytester.runpytest_inprocess(*NO_CACHE, *MODES[mode], "--liftbridge-seeds=3")
    result.assert_outcomes(passed=3)


def test_a_seed_gives_the_same_values_in_any_process(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    pytester.makepyfile(VALUES)
    runs = []
    for run in (pytester.runpytest_inprocess, pytester.runpytest_subprocess):
        result = run(*PLAIN, "-s")
        result.assert_outcomes(passed=2)
        runs.append(re.findall(r"values (\d.*)", str(result.stdout)))
    [first, second] = runs[0]
    assert not set(first.split()) & set(second.split())
    assert runs[1] == runs[0]


def test_a_failure_comes_again_from_its_command(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(RESTARTED)
    result = pytester.runpytest_inprocess(*PLAIN)
    result.assert_outcomes(failed=1)
    digest = found(result, r"seed 1, faults: \d+, digest (\w+)")
    again = pytester.runpytest_inprocess(*PLAIN, *command(result, "repeat it"))
    again.assert_outcomes(failed=1)
    assert found(again, r"digest (\w+)") == digest

    arguments = command(result, "find the fewest faults that fail")
    shortest = pytester.runpytest_inprocess(*PLAIN, *arguments)
    shortest.assert_outcomes(failed=1)
    fault = found(
        shortest, r"seed 1 fails with 1 of \d+ faults:\n.*fault (\d+): (?:kill|stop|s)\w+ at"
    )
    assert fault == found(shortest, r"--liftbridge-faults (\d+)")
    last = pytester.runpytest_inprocess(*PLAIN, *command(shortest, "repeat it"))
    last.assert_outcomes(failed=1)
    arguments = ["--liftbridge-seed=1", "--liftbridge-faults=none"]
    pytester.runpytest_inprocess(*PLAIN, *arguments).assert_outcomes(passed=1)


@pytest.mark.parametrize("what", FAILING)
def test_a_failure_says_what_happened(pytester: pytest.Pytester, what: str) -> None:
    body, lines = FAILING[what]
    head = (
        "import asyncio\nimport pytest\n\n@pytest.mark.liftbridge_simulation(seeds=1, seconds=10)\n"
    )
    pytester.makepyfile(f"{head}async def test(liftbridge_simulation):\n{body}")
    result = pytester.runpytest_inprocess(*PLAIN)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([*lines, "*repeat it: pytest *--liftbridge-seed 1"])


def found(result: pytest.RunResult, pattern: str) -> str:
    match = re.search(pattern, str(result.stdout))
    assert match is not None, str(result.stdout)
    return match[1]


def command(result: pytest.RunResult, what: str) -> list[str]:
    """Return the arguments of a command that a failure names."""
    return shlex.split(found(result, f"{what}: pytest (.*)"))
