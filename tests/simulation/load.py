"""A run: programs, faults, and what must hold of all that was seen.

It is the same in a simulated world and on real nodes (`tests/chaos`).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from liftbridge_aio import Client, StartAt, StopAt, StreamReset
from liftbridge_aio.testing import EventKind, History, check_history
from liftbridge_aio.testing.simulation.processes import Hosts, Processes, leaves

from .programs import ALL, AT_LEAST_ONCE
from .programs.program import (
    PARTITIONS,
    SAFE,
    STREAM,
    Losses,
    Orders,
    Program,
    Surroundings,
    new_client,
)
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
        excused: how many of these need not be there, as servers have lost them.
    """

    recovered: dict[str, float] = field(default_factory=dict)
    published: int = 0
    excused: int = 0


def drawn_programs(seed: int, *, sturdy: bool) -> Sequence[type[Program]]:
    """Return the programs of a seed, besides the publishers.

    Args:
        seed: of the world.
        sturdy: choose among those that servers that lose messages cannot confuse.
    """
    programs = AT_LEAST_ONCE if sturdy else ALL
    chance = random.Random(f"{seed}:programs")
    return chance.sample(programs, chance.randint(1, PROGRAMS))


class Machines(Hosts, Surroundings, Protocol):
    """Where both processes and programs run."""


def excuse(history: History, excused: set[bytes]) -> History:
    """Return a history in which the outcome of some sends is unknown."""
    judged = History()
    for event in history.events:
        is_excused = event.kind is EventKind.ACKED and event.value in excused
        judged.extend([event._replace(kind=EventKind.UNKNOWN) if is_excused else event])
    return judged


class Load:
    """Programs under faults.

    Args:
        world: where they run.
        programs: which ones, besides the publishers.
        losses: what servers lose.
        may_end_with: errors with which any process may end, besides those of its program.
        within: seconds after the last fault within which everybody works again.
    """

    def __init__(
        self,
        world: Machines,
        programs: Sequence[type[Program]],
        losses: Losses,
        may_end_with: tuple[type[Exception], ...] = (),
        within: float = RECOVERED,
    ) -> None:
        self.world = world
        self.orders = Orders(world, losses)
        self.report = Report()
        self.publishing = Publishing(world, self.orders)
        self.programs = (self.publishing, *(each(world, self.orders) for each in programs))
        self.processes = Processes(world)
        self.ends: list[str] = []
        """With which errors processes have ended, and when."""
        self._may_end_with = may_end_with
        self._within = within
        self._suspect: list[tuple[Program, Exception]] = []
        """How processes ended that may have relied on what servers have lost."""
        self._resets: set[tuple[str | None, int | None]] = set()
        """The partitions of which a reader was told that their log was cut."""

    async def run(self, inflict: Callable[[Processes], Awaitable[None]]) -> None:
        """Run all, inflict faults, then demand progress, and judge."""
        async with new_client(self.world) as client:
            await client.create_stream(
                STREAM, partitions=PARTITIONS, replication_factor=3, options=SAFE
            )
            for program in self.programs:
                await program.prepare(client)
                self._start(program)
            try:
                await inflict(self.processes)
                self.orders.is_over = True
                await self._recover()
            finally:
                await self.processes.end()
            self.check_processes()
            await asyncio.sleep(SETTLED)
            await self._read_out(client)
            await self.orders.losses.look()
            unfounded = self._resets.difference(self.orders.losses.places)
            assert not unfounded, f"told that logs were cut which were not: {unfounded}"
            self.report.published = len(self.orders.acked)
            # Processes that were killed have left some unread; "at the end" all was read.
            excused = self.orders.losses.excused(STREAM)
            self.report.excused = len(excused & self.orders.acked)
            history = excuse(self.orders.history, excused)
            check_history(history).raise_for_defects(allow_unread=True)
            for program, error in self._suspect:
                if not self.is_excused(program):
                    raise error
            for program in self.programs:
                if not self.is_excused(program):
                    await program.judge(client)

    def is_excused(self, program: Program) -> bool:
        """Return whether servers have lost what a program relies on."""
        return bool(self.orders.losses.places) and self._relies_on_records(program)

    @staticmethod
    def _relies_on_records(program: Program) -> bool:
        """Return whether a program has records of its own, as what works exactly once."""
        return not isinstance(program, (Publishing, *AT_LEAST_ONCE))

    def _start(self, program: Program) -> None:
        """Start the processes of a program, each of which is started again when it ends."""
        named = expected = may_end_with = program.may_end_with + self._may_end_with
        if self.orders.losses.are_excused:
            expected = may_end_with = (*named, StreamReset)
            if self._relies_on_records(program):
                may_end_with = (Exception,)

        async def work() -> None:
            host = self.world.current_host
            try:
                await program.work(host)
            except Exception as error:
                self.ends.append(f"{self.world.now:.2f} {host}: {error!r}")
                for each in leaves(error):
                    if not isinstance(each, expected):
                        self._suspect.append((program, error))
                    elif isinstance(each, StreamReset) and not isinstance(each, named):
                        self._resets.add((each.stream, each.partition))
                raise
            finally:
                program.members.pop(host, None)

        for host in program.hosts:
            self.processes.start(host, work, may_end_with, twin=host in program.with_twins)

    def check_processes(self) -> None:
        """Raise the error of a process that its docs do not name."""
        if self.processes.failed.done():
            raise self.processes.failed.result()

    async def _recover(self) -> None:
        """Wait until no program lacks anything, and note how long each did."""
        began = self.world.now
        recovered = self.report.recovered = {type(each).__name__: 0.0 for each in self.programs}
        while lacking := [each for each in self.programs if each.missing()]:
            for program in lacking:
                recovered[type(program).__name__] = self.world.now - began
            self.check_processes()
            await self.orders.losses.look()
            lacking = [each for each in lacking if not self.is_excused(each)]
            if not lacking:
                return
            if self.world.now > began + self._within:
                lacks = {type(each).__name__: sorted(each.missing())[:5] for each in lacking}
                raise AssertionError(f"not done {self._within:g} s after the last fault: {lacks}")
            await asyncio.sleep(0.1)

    async def _read_out(self, client: Client) -> None:
        for partition in range(PARTITIONS):
            log = self.orders.log[partition] = {}
            async for message in client.subscribe(
                STREAM, partition=partition, start=StartAt.earliest(), stop=StopAt.latest()
            ):
                log[message.offset] = message.value
                self.orders.history.delivered(message.value, partition, reader="at the end")
            self.orders.history.finished(partition, reader="at the end")
