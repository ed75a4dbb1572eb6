"""A run of a world: programs, faults, and what must hold of all that was seen."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from liftbridge_aio import Client, StartAt, StopAt, StreamReset
from liftbridge_aio.testing import check_history
from liftbridge_aio.testing.simulation.faults import Fault, inflict
from liftbridge_aio.testing.simulation.processes import Processes
from liftbridge_aio.testing.simulation.world import World

from .flaws import excuse
from .programs import ALL, AT_LEAST_ONCE
from .programs.program import PARTITIONS, SAFE, STREAM, Orders, Program, new_client
from .programs.publishing import Publishing

PROGRAMS: Final = 3
"""How many programs run in a world at most, besides the publishers."""
RECOVERED: Final = 40.0
"""Simulated seconds after the last fault within which everybody works again."""
SETTLED: Final = 5.0
"""Seconds after which a new leader knows what is committed, which "latest" stands for."""


@dataclass
class Report:
    """What a run tells.

    Attributes:
        recovered: for each program, the seconds after the last fault until it lacked nothing.
        published: how many orders were acked.
    """

    recovered: dict[str, float] = field(default_factory=dict)
    published: int = 0


def drawn_programs(seed: int, *, sturdy: bool) -> Sequence[type[Program]]:
    """Return the programs of a seed, besides the publishers.

    Args:
        seed: of the world.
        sturdy: choose among those that servers that lose messages cannot confuse.
    """
    programs = AT_LEAST_ONCE if sturdy else ALL
    chance = random.Random(f"{seed}:programs")
    return chance.sample(programs, chance.randint(1, PROGRAMS))


class Load:
    """The programs that a seed has drawn, under faults.

    Args:
        world: where they run.
        faults: what is inflicted on them.
        programs: which ones.
    """

    def __init__(
        self, world: World, faults: Sequence[Fault], programs: Sequence[type[Program]]
    ) -> None:
        self.world = world
        self.orders = Orders(world)
        self.report = Report()
        self._publishing = Publishing(world, self.orders)
        self.programs = (self._publishing, *(each(world, self.orders) for each in programs))
        self._faults = faults
        self._processes = Processes(world)

    async def run(self) -> None:
        """Run all, inflict faults, then demand progress, and judge."""
        async with new_client(self.world) as client:
            await client.create_stream(
                STREAM, partitions=PARTITIONS, replication_factor=3, options=SAFE
            )
            for program in self.programs:
                await program.prepare(client)
                self._start(program)
            try:
                await inflict(self.world, self._faults, self._processes)
                self.orders.is_over = True
                await self._recover()
            finally:
                await self._processes.end()
            self._check_processes()
            await asyncio.sleep(SETTLED)
            await self._read_out(client)
            self.report.published = len(self.orders.acked)
            # Processes that were killed have left some unread; "at the end" all was read.
            history = excuse(self.orders.history, self.orders.excused())
            check_history(history).raise_for_defects(allow_unread=True)
            for program in self.programs:
                await program.judge(client)

    def _start(self, program: Program) -> None:
        """Start the processes of a program, each of which is started again when it ends."""
        may_end_with = program.may_end_with
        if self.world.flaws.cuts_committed:
            may_end_with += (StreamReset,)

        async def work() -> None:
            host = self.world.current_host
            try:
                await program.work(host)
            finally:
                program.members.pop(host, None)

        for host in program.hosts:
            self._processes.start(host, work, may_end_with, twin=host in program.with_twins)

    def _check_processes(self) -> None:
        """Raise the error of a process that its docs do not name."""
        if self._processes.failed.done():
            raise self._processes.failed.result()

    async def _recover(self) -> None:
        """Wait until no program lacks anything, and note how long each did."""
        began = self.world.now
        recovered = self.report.recovered = {type(each).__name__: 0.0 for each in self.programs}
        while lacking := [each for each in self.programs if each.missing()]:
            for program in lacking:
                recovered[type(program).__name__] = self.world.now - began
            self._check_processes()
            if self.world.now > began + RECOVERED:
                lacks = {type(each).__name__: sorted(each.missing())[:5] for each in lacking}
                raise AssertionError(f"not done {RECOVERED:g} s after the last fault: {lacks}")
            await asyncio.sleep(0.1)

    async def _read_out(self, client: Client) -> None:
        for partition in range(PARTITIONS):
            log = self.orders.log[partition] = {}
            async for message in client.subscribe(
                STREAM, partition, start=StartAt.earliest(), stop=StopAt.latest()
            ):
                log[message.offset] = message.value
                self.orders.history.delivered(message.value, partition, reader="at the end")
            self.orders.history.finished(partition, reader="at the end")
