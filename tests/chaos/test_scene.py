"""The wait after a fault, and the verdict on servers that do not work."""

from __future__ import annotations

import time
from typing import Any

import pytest

from chaos.evidence import FaultRecord
from chaos.plan import Kind, Planned
from chaos.scene import Run
from chaos.stage import ClusterLost, Stage


class Servers:
    """A stage whose witness has its acks at once; `n1` leads `all-a/0`, `n2` the other."""

    living: dict[str, str]

    def __init__(self) -> None:
        self.living = {}
        self.led = {("all-a", 0): "n1", ("all-a", 1): "n2"}

    async def first_acks(self, *_: object) -> dict[str, Any]:
        return {"acked_at": time.monotonic(), "sends": [], "missing": ""}

    async def leaders(self) -> dict[tuple[str, int], str]:
        return self.led


def run_of(servers: Any) -> Run:
    return Run(servers, lambda _: None, http=False)


async def test_what_a_silent_node_leads_is_not_waited_for_and_all_else_is() -> None:
    run = run_of(Servers())
    later = time.monotonic() + 60.0
    run.load.lane("plain of all-a/0", ("all-a", 0))
    run.load.lane("group on all-a/1", ("all-a", 1))
    run.load.lane("plain of all-a/1", ("all-a", 1)).succeeded(later, later + 1.0)
    run.load.lane("publish all-a/0").succeeded(later, later + 2.0)
    run.faults.append(FaultRecord(1, Kind.SILENT, time.monotonic()))
    await run.checkpoint(without="n1")
    [recovery] = run.faults[0].recoveries
    assert recovery.last == "publish all-a/0"
    assert recovery.seconds == pytest.approx(62.0, abs=5.0)


async def test_a_fault_is_not_spoiled_by_what_servers_do_after_it() -> None:
    run = run_of(Servers())
    run.faults.append(FaultRecord(1, Kind.CUT, 100.0, ended=101.0))
    run.spoil("n1 ended by itself")
    assert not run.faults[0].spoiled
    assert run.servers == ["after fault 1: n1 ended by itself"]
    run.faults.append(FaultRecord(2, Kind.CUT, 102.0))
    run.spoil("n1 ended by itself")
    assert run.faults[1].spoiled == "n1 ended by itself"


async def test_nobody_is_taken_for_a_leader_that_nobody_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("chaos.stage.LEADER_WITHIN", 0.2)
    servers: Any = Servers()
    assert await Stage.leader_of(servers, "all-a", 1) == "n2"
    servers.led = {}
    with pytest.raises(ClusterLost, match="all-a/1"):
        await Stage.leader_of(servers, "all-a", 1)


async def test_a_plan_without_time_is_not_begun() -> None:
    run = run_of(Servers())
    await run.play(iter([Planned(1, Kind.KILL_EACH, 1.0, 0.0, 0.0, 0.0)]), time.monotonic())
    assert not run.faults
