"""Plans of faults are played to their end."""

from __future__ import annotations

import asyncio

import pytest

from liftbridge_aio.testing import FaultKind, FaultProxy, PlannedFault, plan_faults
from liftbridge_aio.testing.proxy.faults import Direction
from support.peers.tcp import BOUND, Dial, exchange


async def test_every_fault_is_played_and_healed(dial: Dial, proxy: FaultProxy) -> None:
    plan = plan_faults(5, 60, kinds=[*FAULTS], max_lasts=0.01, max_pause=0.01)
    assert {each.kind for each in plan} == FAULTS
    await asyncio.wait_for(proxy.play(plan), BOUND)
    ordered = [fault.kind for fault in proxy.faults if fault.connection is None]
    assert set(ordered) == {*FAULTS, FaultKind.HEAL, FaultKind.ACCEPT}
    assert await exchange(await dial(), b"peace") == b"peace"


FAULTS = {*FaultKind} - {FaultKind.ACCEPT, FaultKind.THAW, FaultKind.HEAL}


async def test_a_cancelled_plan_ends_healed(dial: Dial, proxy: FaultProxy) -> None:
    plan = [PlannedFault(FaultKind.REFUSE, Direction.BOTH, lasts=60.0, pause=0.0)]
    playing = asyncio.create_task(proxy.play(plan))
    await asyncio.sleep(0.01)
    with pytest.raises(ConnectionRefusedError):
        await dial()
    playing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await playing
    assert await exchange(await dial(), b"peace") == b"peace"


async def test_what_is_no_fault_is_not_played(proxy: FaultProxy) -> None:
    plan = [PlannedFault(FaultKind.HEAL, Direction.BOTH, lasts=0.0, pause=0.0)]
    with pytest.raises(ValueError, match="cannot be planned"):
        await proxy.play(plan)
