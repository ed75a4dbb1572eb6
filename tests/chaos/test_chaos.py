"""A minute of chaos: what `python -m chaos` does for longer."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from chaos.programs import Asking, Leasing, Measuring
from chaos.run import chaos
from simulation.programs import AT_LEAST_ONCE
from simulation.programs.producers import Producing
from simulation.programs.transactions import Invoicing

SEED: Final = 511
SECONDS: Final = 45.0
LOADED: Final = 20.0
"""Seconds that programs get to work again where other tests run on the same machine."""
PROGRAMS: Final = (*AT_LEAST_ONCE, Producing, Invoicing, Leasing, Measuring, Asking)


@pytest.mark.timeout(240)
async def test_programs_on_real_nodes_lose_nothing_and_work_again(
    server_binary: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    del server_binary  # that it can be built is all that is asked
    verdict = await chaos(SEED, SECONDS, recovery_bound=LOADED, programs=PROGRAMS)
    with capsys.disabled():
        print(f"\n{verdict.text()}")  # noqa: T201 - the table is what people look for in the log
    assert not verdict.failures, verdict.text()
    assert len(verdict.kinds) >= 2  # a busy machine takes long for each
