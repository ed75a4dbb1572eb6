"""Infliction and healing of faults: their order, and the check of clients after each."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

import pytest

from chaos.inflict import inflict
from chaos.plan import Kind, Planned
from support.servers.cluster import NODE_IDS

AT_ONCE: Final = (Kind.CUT, Kind.RESET, Kind.GOAWAY)
UNNOTICED: Final = (Kind.HALF_OPEN, Kind.STALL, Kind.SILENT)
ONE_NODE, ALL_NODES = 0.0, 0.9


class RecordingProxy:
    """A proxy that notes what is done to it."""

    address = "127.0.0.1:1"

    def __init__(self, done: list[str]) -> None:
        self._done = done

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def note(*_: object, **__: object) -> None:
            self._done.append(name)

        async def note_later(*_: object, **__: object) -> None:
            self._done.append(name)

        if name == "send_goaway":
            return lambda: 1
        return note_later if name in {"cut", "reset", "refuse", "heal"} else note


class RecordingStage:
    """A stage that notes what is done to it; `all-a/0` is led by the second node."""

    def __init__(self, done: list[str]) -> None:
        self._done = done
        self.dead_refuse = True
        self.proxies = {node: RecordingProxy(done) for node in NODE_IDS}
        self.flipping = self.proxies

    async def leader_of(self, stream: str, partition: int) -> str:
        assert (stream, partition) == ("all-a", 0)
        return NODE_IDS[1]

    def __getattr__(self, name: str) -> Callable[..., Any]:
        async def note(*nodes: str) -> None:
            self._done.append(" ".join((name, *nodes)))

        return note


class RecordingScene:
    """A run that notes what faults ask it for."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.stage: Any = RecordingStage(self.done)
        self.options: Any = None

    def partitions(self) -> list[tuple[str, int]]:
        return [("all-a", 0)]

    async def checkpoint(self, *, first: bool = False, without: str | None = None) -> None:
        assert not first
        self.done.append("checkpoint" if without is None else f"checkpoint without {without}")

    async def whole(self, *, addresses: bool = False) -> None:
        self.done.append("whole, at new addresses" if addresses else "whole")

    def hold_up_reader(self, _: Planned) -> Callable[[], None]:
        return lambda: None

    def reopen_flipped_reader(self) -> None:
        pass

    async def fresh_client(self, *_: str) -> str:
        return ""

    async def crash_loop(self, life: float) -> str:
        self.done.append(f"crash loop of {life:g} s")
        return ""

    async def self_pausing(self, idle: float) -> str:
        self.done.append(f"pauses after {idle:g} s")
        return ""


async def done(kind: Kind, *, lasts: float = 0.0, other: float = ONE_NODE) -> list[str]:
    scene = RecordingScene()
    await inflict(scene, Planned(1, kind, lasts, 0.0, 0.0, other))
    return scene.done


async def test_clients_must_work_while_a_killed_node_is_down_and_when_it_is_back() -> None:
    killed = ["kill n2", "checkpoint", "start n2", "whole", "checkpoint"]
    assert await done(Kind.KILL_LEADER) == killed
    assert await done(Kind.KILL_TWO) == [
        *("kill n2 n1", "start n1 n2", "checkpoint", "whole", "checkpoint"),
    ]
    assert (await done(Kind.KILL_EACH)).count("checkpoint") == 6


async def test_clients_must_work_before_a_broker_comes_back_at_another_address() -> None:
    assert await done(Kind.MOVE_BROKER) == [
        *("kill n2", "checkpoint", "move n2", "start n2"),
        *("whole, at new addresses", "checkpoint"),
    ]


async def test_a_lone_server_dies_both_before_and_after_it_knows_its_streams() -> None:
    assert await done(Kind.CRASH_LOOP, lasts=0.3) == ["crash loop of 0.65 s", "checkpoint"]
    assert await done(Kind.CRASH_LOOP, lasts=2.0) == ["crash loop of 1.5 s", "checkpoint"]


async def test_partitions_pause_within_the_time_between_two_tries_to_read_them() -> None:
    assert await done(Kind.SELF_PAUSING, lasts=0.3) == ["pauses after 0.25 s", "checkpoint"]
    assert await done(Kind.SELF_PAUSING, lasts=2.0) == ["pauses after 1.1 s", "checkpoint"]


@pytest.mark.parametrize("kind", AT_ONCE)
async def test_what_is_over_at_once_is_measured_at_once(kind: Kind) -> None:
    began = time.monotonic()
    assert (await done(kind, lasts=60.0))[-1] == "checkpoint"
    assert time.monotonic() - began < 5.0


@pytest.mark.parametrize("kind", UNNOTICED)
async def test_clients_must_work_with_the_other_nodes_while_one_is_silent(kind: Kind) -> None:
    steps = await done(kind)
    assert steps[-3:] == ["checkpoint without n1", "heal", "checkpoint"]
    assert (await done(kind, other=ALL_NODES)).count("checkpoint") == 1


async def test_how_bad_it_is_does_not_decide_at_how_many_nodes() -> None:
    assert (await done(Kind.DELAY)).count("delay") == 1
    assert (await done(Kind.DELAY, other=ALL_NODES)).count("delay") == 3
