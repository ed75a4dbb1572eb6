"""A run from its beginning to its verdict: nodes, programs, one fault after the other."""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
import traceback
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from chaos.alarms import listening
from chaos.leftovers import holdings, settled_holdings
from chaos.losses import WITNESS, WitnessedLosses
from chaos.outages import OUTAGES, SHORT, USUAL, plan
from chaos.programs import Asking, Leasing, Measuring, Postponing, Relaying
from chaos.verdict import FaultRecord, Recovery, Verdict
from chaos.witness import ServersLost
from chaos.world import RealWorld, running_world
from liftbridge_aio import PublishRefused
from liftbridge_aio.testing.simulation.faults import Fault, Target
from liftbridge_aio.testing.simulation.processes import Processes, leaves
from simulation.load import Load
from simulation.programs import ALL
from simulation.programs.bridges import Mirroring
from simulation.programs.gateway import Serving
from simulation.programs.groups import Recreating
from simulation.programs.producers import Producing
from simulation.programs.program import PARTITIONS, STREAM, Program
from simulation.programs.readers import DurableReading, Reading
from simulation.programs.retries import Retrying
from simulation.programs.transactions import Invoicing
from support.servers.ports import free_ports

LEFT_OUT: Final = (Mirroring, Recreating, Retrying, Serving)
"""They need two clusters, delete streams, or have a successor here."""
PROGRAMS: Final[tuple[type[Program], ...]] = (
    *(each for each in ALL if each not in LEFT_OUT),
    *(Relaying, Postponing, Leasing, Measuring, Asking),
)
PROMPT: Final = (Reading, DurableReading, Producing, Invoicing)
"""Programs that wait for nothing but servers: how long they take is measured after each fault."""
OF_PROCESSES: Final = ("kill_process", "stop_process", "start_twin", "slow_network")
"""Faults after which a program begins anew, which may take it longer."""
RECOVERY_BOUND: Final = 5.0
"""Seconds from the witness's acks until these work again."""
NATS_AWAY: Final = (PublishRefused,)
"""With what processes may end that publish while NATS is away; the simulation has none."""
LOOK_AFTER: Final = 3.0
"""Seconds after which the witness looks whether servers have lost what a program lacks."""
STUCK: Final = 80.0
"""Seconds after which a program is held to be stuck, also on a busy machine."""
CLOSING: Final = 8.0
"""Seconds that are kept for the end of a run."""
POLL: Final = 0.05
GUARD_POLL: Final = 0.1

Tell = Callable[[str], None]


async def chaos(
    seed: int,
    seconds: float,
    tell: Tell = print,
    recovery_bound: float = RECOVERY_BOUND,
    programs: Sequence[type[Program]] = PROGRAMS,
) -> Verdict:
    """Play the plan of a seed for so many seconds, the start of the nodes among them, and judge.

    Args:
        seed: which plan.
        seconds: how long; the last fault is undone after that, and the end takes some seconds.
        tell: takes a line for each fault.
        recovery_bound: how many seconds programs get to work again after the witness's acks.
        programs: what runs.

    Raises:
        ServerUnavailable: the servers cannot be built here.
        ClusterNotHealthy: they do not start.
    """
    until = time.monotonic() + seconds
    # One thread does all that blocks, so that there are as many before as after.
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    await asyncio.to_thread(time.monotonic)
    verdict = Verdict(seed, began=time.monotonic())
    with (
        tempfile.TemporaryDirectory(prefix="chaos-", ignore_cleanup_errors=True) as folder,
        listening(verdict.failures),
    ):
        free_ports(1)  # the first call keeps a socket
        before = holdings()
        await _run(verdict, Path(folder), until - CLOSING, tell, programs)
        if rest := (await settled_holdings(before)).more_than(before):
            verdict.failures.append(f"left over at the end: {rest}")
    verdict.judge(recovery_bound, OF_PROCESSES)
    return verdict


async def _run(
    verdict: Verdict, folder: Path, until: float, tell: Tell, programs: Sequence[type[Program]]
) -> None:
    async with running_world(folder, verdict.seed) as world:
        run = Run(world, programs, verdict, tell)
        try:
            await run.load.run(lambda processes: run.play(processes, until))
            run.compare()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is told
            verdict.failures += [f"{type(each).__name__}: {each}" for each in leaves(error)]
            verdict.story += ["".join(traceback.format_exception(error)), *run.load.ends]
        run.finish()


def _is_behind(program: Program, owed: Collection[bytes]) -> bool:
    """Return whether a program still lacks something of what it lacked."""
    return not {*owed}.isdisjoint(program.missing())


class Run:
    """Programs on real nodes, and what is done to them."""

    def __init__(
        self, world: RealWorld, programs: Sequence[type[Program]], verdict: Verdict, tell: Tell
    ) -> None:
        self.world = world
        self.losses = WitnessedLosses(world.witness)
        self.load = Load(world, programs, self.losses, NATS_AWAY, STUCK)
        self.losses.history = self.load.orders.history
        self.verdict = verdict
        self._tell = tell
        self._prompt = [each for each in self.load.programs if type(each) in PROMPT]
        world.works = self._work_again

    async def play(self, processes: Processes, until: float) -> None:
        """Inflict the faults of a plan, but for those that would last beyond the end."""
        guard = asyncio.create_task(self._keep_nodes_up())
        try:
            await self._settle()
            self._tell(f"{self._now:7.1f} s everything works")
            for fault in plan(self.verdict.seed):
                if until - time.monotonic() < SHORT:
                    return
                if time.monotonic() + USUAL.get(fault.kind, SHORT) <= until:
                    await self._inflict(fault, processes)
        finally:
            guard.cancel()
            with suppress(asyncio.CancelledError):
                await guard

    @property
    def _now(self) -> float:
        return time.monotonic() - self.verdict.began

    async def _inflict(self, fault: Fault, processes: Processes) -> None:
        record = FaultRecord(len(self.verdict.faults) + 1, fault.kind, time.monotonic())
        self.verdict.faults.append(record)
        chance = random.Random(f"{self.verdict.seed}:fault:{fault.number}")
        try:
            await OUTAGES[fault.kind](Target(self.world, processes, chance), fault.lasts)
            await self._settle()
        except ServersLost as lost:
            self._spoil(f"the servers did not work: {lost}")
            await self._mend()
            await self._settle()
        record.ended = time.monotonic()
        self._tell(
            f"{record.began - self.verdict.began:7.1f} s {record}; "
            f"whole after {record.ended - record.began:.1f} s"
        )

    async def _settle(self) -> None:
        """Wait until programs work, and all replicas are in sync; then see what is lost.

        Raises:
            ServersLost: the servers do not work.
        """
        await self.world.healed()
        await self._work_again()
        await self.world.witness.whole([STREAM], self.world.advertised)
        await self.losses.look_now()

    async def _work_again(self) -> None:
        """Have the witness get its acks, then programs work; note how long they took.

        Raises:
            ServersLost: the witness did not get its acks.
            AssertionError: a program is stuck.
        """
        acked_at, sent = await self.world.witness.first_acks(STREAM, PARTITIONS)
        history, orders = self.load.orders.history, self.load.orders
        for number, (partition, value, is_acked) in enumerate(sent):
            producer = f"{WITNESS} {acked_at} {number}"  # there is no order among them
            history.sent(value, partition, producer=producer)
            outcome = history.acked if is_acked else history.unknown
            outcome(value, partition, producer=producer)
            if is_acked:
                orders.acked.add(value)
        behind: dict[str, Callable[[], object]] = {
            "Publishing": partial(self._publishers_behind, acked_at)
        }
        last = await self._until(behind, acked_at)
        for program in self._prompt:
            owed = {*program.missing()}
            behind[type(program).__name__] = partial(_is_behind, program, owed)
        last = await self._until(behind, acked_at) or last
        if self.verdict.faults:
            recovery = Recovery(time.monotonic() - acked_at, last or "all at once")
            self.verdict.faults[-1].recoveries.append(recovery)

    def _publishers_behind(self, moment: float) -> list[int]:
        """Return the partitions of which nothing was acked that was sent after a moment."""
        began = self.load.publishing.began
        return [each for each in range(PARTITIONS) if began.get(each, 0.0) <= moment]

    async def _until(self, behind: dict[str, Callable[[], object]], acked_at: float) -> str:
        """Wait until nothing lacks anything, and return what was the last to do so."""
        last = ""
        while lacking := [name for name, lacks in behind.items() if lacks()]:
            last = lacking[-1]
            self.load.check_processes()
            if time.monotonic() > acked_at + STUCK:
                raise AssertionError(
                    f"stuck after fault {len(self.verdict.faults)}: {', '.join(lacking)}"
                )
            if time.monotonic() > acked_at + LOOK_AFTER:
                # Of the others what is committed may be hidden while a node is down.
                await self.losses.look(STREAM)
            await asyncio.sleep(POLL)
        return last

    async def _keep_nodes_up(self) -> None:
        """Start nodes again that end by themselves, as a service manager does, and tell of them."""
        while True:
            for node in self.world.witness.living:
                if not self.world.nodes[node].running:
                    self._spoil(f"{node} ended by itself: {self.world.last_words(node)}")
                    await self.world.cluster.start_node(node)
            await asyncio.sleep(GUARD_POLL)

    def _spoil(self, why: str) -> None:
        """Note that the servers did something that nobody asked them for."""
        self.verdict.servers.append(f"after fault {len(self.verdict.faults)}: {why}")
        if self.verdict.faults and not self.verdict.faults[-1].ended:
            self.verdict.faults[-1].is_spoiled = True

    async def _mend(self) -> None:
        """Restart nodes until they work together.

        Raises:
            ServersLost: they never did.
        """
        self.world.heal()
        for node in self.world.nodes:
            self.world.thaw(node)
            await self.world.stop_node(node)
            await self.world.start_node(node)
            with suppress(ServersLost):
                return await self.world.witness.whole([STREAM], self.world.advertised)
        raise ServersLost("nor after each was restarted")

    def compare(self) -> None:
        """Check that the log of the orders is what the witness has read of it."""
        for partition, log in self.load.orders.log.items():
            seen = self.losses.logs[STREAM, partition]
            assert log == seen, f"{STREAM}/{partition} was read in another way by the witness"

    def finish(self) -> None:
        """Take figures."""
        verdict = self.verdict
        verdict.ended = time.monotonic()
        verdict.events = [*self.load.orders.history.events]
        verdict.recovered = self.load.report.recovered
        verdict.servers += [f"the log of {name}/{at} was cut" for name, at in self.losses.places]
        for program in self.load.programs:
            if self.load.is_excused(program):
                verdict.servers.append(f"not judged, as it has records: {type(program).__name__}")
            if isinstance(program, Measuring) and program.lost:
                verdict.servers.append(f"{program.lost} messages acked by a leader alone are lost")
