"""A minute of chaos: what `python -m chaos` does for longer."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.floor import Floor
from chaos.run import chaos
from chaos.table import text

SEED = 20261121
SECONDS = 60.0
LOADED = 20.0
"""Seconds that clients get to work again where other tests run on the same machine."""
FLOOR = Floor(faults=6, kinds=5)


@pytest.mark.timeout(240)
async def test_nothing_acked_by_all_is_lost_and_clients_recover_every_time(
    server_binary: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    del server_binary  # that it can be built is all that is asked
    verdict = await chaos(SEED, SECONDS, recovery_bound=LOADED, floor=FLOOR, http=False)
    with capsys.disabled():
        print(f"\n{text(verdict)}")  # noqa: T201 - the table is what people look for in the log
    assert verdict.ok, text(verdict)
    assert verdict.total.acked > verdict.total.sent / 2
    assert not verdict.total.lost
    assert not verdict.total.repeated
    assert not verdict.total.reordered
