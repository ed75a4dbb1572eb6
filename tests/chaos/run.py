"""A run from its beginning to its verdict: cluster, load, one fault after the other."""

from __future__ import annotations

import asyncio
import tempfile
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from chaos.alarms import listening
from chaos.crew import ALL_STREAMS, FLIPPED_STREAM, GROUP, LEADER_STREAM
from chaos.ending import finish, read_log
from chaos.evidence import Evidence, Log
from chaos.floor import Floor
from chaos.journal import Finding
from chaos.leftovers import Holdings, holdings, settled_holdings
from chaos.plan import plan
from chaos.scene import Run, Tell
from chaos.stage import ClusterLost, ProbeFailed, running_stage
from chaos.verdict import ANY, RECOVERY_BOUND, Verdict, judge

CLOSING: Final = 8.0
"""Seconds that are kept for the end of a run."""


async def chaos(
    seed: int,
    seconds: float,
    tell: Tell = print,
    recovery_bound: float = RECOVERY_BOUND,
    floor: Floor = ANY,
    *,
    http: bool = True,
) -> Verdict:
    """Play the plan of a seed for so many seconds, the start of the cluster among them, and judge.

    A run that breaks is judged too, as far as it came.

    Args:
        seed: which plan.
        seconds: how long; the last fault is healed after that, and the end takes some seconds.
        tell: takes a line for each fault.
        recovery_bound: how many seconds clients get to work again after the witness's ack.
        floor: how many faults there must have been.
        http: whether there is load over HTTP too, which takes two gateways.

    Raises:
        ServerUnavailable: The servers cannot be built here.
        ClusterNotHealthy: They do not start.
    """
    until = time.monotonic() + seconds
    # One thread does all that blocks, so that there are as many before as after.
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    await asyncio.to_thread(time.monotonic)
    with tempfile.TemporaryDirectory(prefix="chaos-", ignore_cleanup_errors=True) as folder:
        async with running_stage(Path(folder), seed) as stage:
            await stage.leaders()
            run = Run(stage, tell, http=http)
            with listening(run.load):
                before = holdings()
                tell(f"seed {seed}: cluster and witness stand; held: {before}")
                try:
                    async with run.crew.at_work(run.whole):
                        await run.checkpoint(first=True)
                        tell(f"{time.monotonic() - run.began:7.1f} s everything works")
                        await run.play(plan(seed), until - CLOSING)
                        await finish(run)
                except* ClusterLost as lost:
                    run.servers.append(f"the run ended early: {lost.exceptions[0]}")
                    run.load.find("the servers did not come to work again", excusable=False)
                except* Exception as broken:  # noqa: BLE001 - whatever it is, it is told
                    for error in broken.exceptions:
                        _note_break(run, error)
                evidence = await _evidence(run, seed, before)
            return judge(evidence, recovery_bound, floor)


def _note_break(run: Run, error: Exception) -> None:
    run.load.find(f"the run itself broke: {error!r}", excusable=False)
    run.crashes.append("".join(traceback.format_exception(error)))


async def _evidence(run: Run, seed: int, before: Holdings) -> Evidence:
    load, crew = run.load, run.crew
    readers = [
        (reader.place.stream, reader.place.partition, reader.name.partition(" again")[0])
        for reader in crew.readers
        if reader.place.stream != FLIPPED_STREAM
    ]
    members = [member.name for member in crew.members]
    parts = {name: part.text() for name, part in crew.parts.items()}
    crew.dismiss()
    after = await settled_holdings(before)
    if rest := after.more_than(before):
        load.find(f"left over at the end: {rest}", excusable=False)
    load.findings += [
        Finding(each.began, str(each), excusable=False) for each in load.calls.overdue
    ]
    log: Log = {}
    try:
        log = await read_log(run)
    except (ProbeFailed, KeyError) as error:
        _note_break(run, error)
    held, held_bytes, published = crew.most_held
    extra: dict[str, Any] = {
        "held before": str(before),
        "held after": str(after),
        "calls": dict(load.calls.count),
        "longest calls (s)": {k: round(v, 2) for k, v in load.calls.longest.items()},
        "typed errors": dict(load.calls.errors),
        "the first of each": dict(load.calls.examples),
        "event loop late by at most (s)": round(crew.longest_lag, 3),
        "slow reader": f"{published} messages while it took nothing, of which the client held "
        f"{held} ({held_bytes} bytes); the others waited at the server",
        **parts,
    }
    if run.crashes:
        extra["crashes"] = run.crashes
    return Evidence(
        seed=seed,
        began=run.began,
        ended=time.monotonic(),
        faults=run.faults,
        journal=load.journal,
        lanes={name: lane for name, lane in load.lanes.items() if FLIPPED_STREAM not in name},
        log=log,
        streams_all=ALL_STREAMS,
        streams_leader=(LEADER_STREAM,),
        groups=dict.fromkeys(members, GROUP),
        findings=load.findings,
        servers=run.servers,
        extra=extra,
        readers=readers,
        grouped=run.partitions(),
    )
