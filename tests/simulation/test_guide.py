"""The guide to the simulation: its example has the bug, and the mended one does not."""

from __future__ import annotations

import re
from typing import Final

import pytest

# pytester forgets what is imported during a run; these are imported once.
from liftbridge_aio.integrations import fastapi  # noqa: F401 - see above
from liftbridge_aio.testing.simulation import (
    faults,
    stand_ins,  # noqa: F401 - see above
)
from support.markdown import ROOT, blocks

pytestmark = [pytest.mark.virtual_time, pytest.mark.timeout(300)]
pytest_plugins = ["pytester"]

GUIDE: Final = ROOT / "docs" / "simulation.md"
ARGUMENTS: Final = ("-pno:cacheprovider", "-pno:asyncio", "-pno:anyio")


def test_the_example_fails_as_shown_and_passes_when_mended(pytester: pytest.Pytester) -> None:
    shop, test, mended = (block.code for block in blocks(GUIDE, "python"))
    files = {"shop": shop, "test_shop": test}
    pytester.makepyfile(**files)
    shown = GUIDE.read_text()
    [(seed, number)] = re.findall(r"--liftbridge-seed (\d+) --liftbridge-faults (\d+)", shown)
    [fault] = re.findall(r"^E +(fault .*)$", shown, re.MULTILINE)

    def run(numbers: str) -> pytest.RunResult:
        options = (f"--liftbridge-seed={seed}", f"--liftbridge-faults={numbers}")
        return pytester.runpytest_inprocess(*ARGUMENTS, *options)

    failed = run(number)
    failed.assert_outcomes(failed=1)
    failed.stdout.fnmatch_lines(["E*AssertionError: assert Counter(*"])
    run("none").assert_outcomes(passed=1)
    [planned] = [each for each in faults.plan(int(seed), 300.0) if each.number == int(number)]
    assert fault == f"fault {planned}"

    old = re.search(r"    async def write.*?\n\n\n", shop, re.DOTALL)
    assert old is not None
    pytester.makepyfile(shop=shop.replace(old[0], f"{mended}\n\n"))
    result = pytester.runpytest_inprocess(*ARGUMENTS, f"--liftbridge-seed={seed}")
    result.assert_outcomes(passed=1)
