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
from liftbridge_aio.testing.simulation.world import World, leaves

from .flaws import excuse
from .programs import ALL, AT_LEAST_ONCE
from .programs.program import PARTITIONS, SAFE, STREAM, Orders, Program, new_client
from .programs.publishing import Publishing

PROGRAMS: Final = 3
"""How many programs run in a world, besides the publishers."""
RECOVERED: Final = 40.0
"""Simulated seconds after the last fault within which everybody works again."""
CLOSED: Final = 30.0
"""Simulated seconds within which a process ends that is told to."""
SETTLED: Final = 5.0
"""Seconds after which a new leader knows what is committed, which "latest" stands for."""
REBORN: Final = 0.5
"""Seconds after which a process that has ended is started again."""


@dataclass
class Report:
    """What a run tells.

    Attributes:
        recovered: for each program, the seconds after the last fault until it lacked nothing.
        published: how many orders were acked.
        ended: how often a program ended with an error that its docs name.
    """

    recovered: dict[str, float] = field(default_factory=dict)
    published: int = 0
    ended: int = 0


def drawn_programs(seed: int, *, sturdy: bool) -> Sequence[type[Program]]:
    """Return the programs of a seed, besides the publishers.

    Args:
        seed: of the world.
        sturdy: choose among those that servers that lose messages cannot confuse.
    """
    programs = AT_LEAST_ONCE if sturdy else ALL
    return random.Random(f"{seed}:programs").sample(programs, PROGRAMS)


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
        self.hosts = [host for program in self.programs for host in program.hosts]
        self.with_twins = [host for program in self.programs for host in program.with_twins]
        self._lives: dict[str, asyncio.Task[None]] = {}
        """The running process of each host."""
        self._twins = 0
        """How many were started."""
        self._failures: list[BaseException] = []
        """Errors of processes that their docs do not name."""
        self._is_over = False
        """Set when processes that end are not started again."""

    async def run(self) -> None:
        """Run all, inflict faults, then demand progress, and judge."""
        async with new_client(self.world) as client, asyncio.TaskGroup() as tasks:
            await client.create_stream(
                STREAM, partitions=PARTITIONS, replication_factor=3, options=SAFE
            )
            for program in self.programs:
                await program.prepare(client)
                for host in program.hosts:
                    tasks.create_task(self._keep(program, host), name=f"keep {host}")
            await inflict(self.world, self._faults, self)
            self.orders.is_over = True
            await self._recover()
            await self._end()
            if self._failures:
                raise BaseExceptionGroup("processes failed", self._failures)
            await asyncio.sleep(SETTLED)
            await self._read_out(client)
            self.report.published = len(self.orders.acked)
            # Processes that were killed have left some unread; "at the end" all was read.
            history = excuse(self.orders.history, self.orders.excused())
            check_history(history).raise_for_defects(allow_unread=True)
            for program in self.programs:
                await program.judge(client)

    # For faults

    def stop(self, host: str) -> None:
        """Tell a process to end."""
        self._lives[host].cancel()

    def start_twin(self, host: str) -> str:
        """Start a process once more, and return the host on which it runs."""
        [program] = [each for each in self.programs if host in each.hosts]
        self._twins += 1
        twin = f"{host}-twin-{self._twins}"
        life = self.world.on(twin, program.work(twin))
        life.add_done_callback(lambda life: self._ended(program, twin, life))
        return twin

    # Processes

    def _ended(self, program: Program, host: str, life: asyncio.Task[None]) -> None:
        """Check with what a process has ended."""
        program.members.pop(host, None)
        if life.cancelled() or (error := life.exception()) is None:
            return
        named = program.may_end_with
        if self.world.flaws.cuts_committed:
            named += (StreamReset,)
        if all(isinstance(each, named) for each in leaves(error)):
            self.report.ended += 1
        else:
            self._failures.append(error)

    async def _keep(self, program: Program, host: str) -> None:
        """Keep a process running, as an operating system does."""
        while not self._is_over:
            await self.world.wait_alive(host)
            life = self._lives[host] = self.world.on(host, program.work(host))
            life.set_name(f"{type(program).__name__} on {host}")
            await asyncio.wait({life})
            self._ended(program, host, life)
            await asyncio.sleep(REBORN)

    async def _recover(self) -> None:
        """Wait until no program lacks anything, and note how long each did."""
        began = self.world.now
        recovered = self.report.recovered = {type(each).__name__: 0.0 for each in self.programs}
        while lacking := [each for each in self.programs if each.missing()]:
            for program in lacking:
                recovered[type(program).__name__] = self.world.now - began
            if self._failures:
                raise BaseExceptionGroup("processes failed", self._failures)
            if self.world.now > began + RECOVERED:
                lacks = {type(each).__name__: sorted(each.missing())[:5] for each in lacking}
                text = f"not done {RECOVERED:g} s after the last fault: {lacks}"
                raise AssertionError(text)
            await asyncio.sleep(0.1)

    async def _end(self) -> None:
        """End all processes, each within its time."""
        self._is_over = True
        lives = list(self._lives.values())
        for life in lives:
            life.cancel()
        _, left = await asyncio.wait(lives, timeout=CLOSED)
        names = sorted(each.get_name() for each in left)
        assert not left, f"{names} did not end within {CLOSED:g} s"

    async def _read_out(self, client: Client) -> None:
        for partition in range(PARTITIONS):
            log = self.orders.log[partition] = {}
            async for message in client.subscribe(
                STREAM, partition, start=StartAt.earliest(), stop=StopAt.latest()
            ):
                log[message.offset] = message.value
                self.orders.history.delivered(message.value, partition, reader="at the end")
            self.orders.history.finished(partition, reader="at the end")
