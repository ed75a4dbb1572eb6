"""Members that share a partition over NATS and are killed: no message is lost, few are repeated."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import pytest

from liftbridge_aio import Client, StartAt
from support.groups.group_watcher import it_is
from support.raw import eventually
from support.servers.node import LiftbridgeNode

DATA_PATHS: Final = ["lane"]
WORKER: Final = Path(__file__).parents[1] / "support" / "lease_worker.py"
TOTAL: Final = 600


class Worker:
    """A member that is a program."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.begun: list[tuple[str, str]] = []
        self.done: list[tuple[str, str]] = []

    async def read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            event, kind, value = line.decode().split()
            (self.begun if event == "begin" else self.done).append((kind, value))

    @property
    def kind(self) -> str:
        """The kind of the messages that it works on now."""
        return self.begun[-1][0] if self.begun else ""

    async def kill(self) -> None:
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()


@pytest.mark.timeout(120)
async def test_members_that_are_killed_lose_no_message(
    start_real_server: Callable[[], LiftbridgeNode],
) -> None:
    node = await asyncio.to_thread(start_real_server)
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(Client(node.address))
        await client.create_stream("s")
        workers = []
        for _ in range(4):
            arguments = WORKER, node.address, node.nats_url, "s", "g"
            process = await asyncio.create_subprocess_exec(sys.executable, *arguments, stdout=PIPE)
            workers.append(Worker(process))
            stack.push_async_callback(workers[-1].kill)
        reading = [asyncio.create_task(worker.read()) for worker in workers]
        for number in range(TOTAL):
            await client.publish("s", b"%d" % number, b"%d" % (number % 40))

        def all_work() -> bool:
            kinds = Counter(worker.kind for worker in workers)
            return kinds == {"own": 1, "leased": 3} and all(len(each.done) > 5 for each in workers)

        await eventually(it_is(all_work))
        [owner] = [each for each in workers if each.kind == "own"]
        holder, *others = [each for each in workers if each is not owner]
        await holder.kill()
        before = [len(each.done) for each in others]
        await eventually(
            it_is(lambda: all(len(e.done) > n + 5 for e, n in zip(others, before, strict=True)))
        )
        await owner.kill()

        def is_done() -> bool:
            return len({value for worker in workers for _, value in worker.done}) == TOTAL

        await eventually(it_is(is_done))
        counts = Counter(value for worker in workers for _, value in worker.done)
        repeated = sum(counts.values()) - TOTAL
        print(f"{repeated} repeated", Counter(kind for w in workers for kind, _ in w.done))
        for worker in others:
            worker.process.terminate()
        await asyncio.wait(reading)
        async with client.queue("s", group="g", start=StartAt.earliest(), timeout=30) as queue:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(2):
                    await anext(queue)
        assert repeated <= 100
