"""Queues shared over NATS whose members, and whose NATS, fail: no message is lost."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from liftbridge_aio import Client, Message
from liftbridge_aio._runtime.nats_library import NatsConnection
from liftbridge_aio.queue import Delivery, LeaseExpired, Queue, QueueOptions
from liftbridge_aio.queue.lease_bus import SUBJECTS
from liftbridge_aio.testing import FaultProxy
from support.groups.group_watcher import publish
from support.groups.leasing_members import members, take
from support.raw import BOUND
from support.servers.node import LiftbridgeNode

DATA_PATHS: Final = ["lane"]
WORKER: Final = Path(__file__).parents[1] / "support" / "lease_worker.py"


class Worker:
    """A member that is a program."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.begun: list[tuple[str, str]] = []
        self.done: list[tuple[str, str]] = []
        self.epoch: int | None = None

    @classmethod
    async def start(cls, node: LiftbridgeNode, stack: AsyncExitStack, *more: str) -> Worker:
        arguments = str(WORKER), node.address, node.nats_url, "s", "g", *more
        process = await asyncio.create_subprocess_exec(sys.executable, *arguments, stdout=PIPE)
        worker = cls(process)
        reading = asyncio.create_task(worker.read())
        stack.push_async_callback(asyncio.wait, [reading])
        stack.push_async_callback(worker.kill)
        return worker

    async def read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            event, kind, value = line.decode().split()
            if event == "epoch":
                self.epoch = int(value)
            else:
                (self.begun if event == "begin" else self.done).append((kind, value))

    @property
    def kind(self) -> str:
        """The kind of the messages that it works on now."""
        return self.begun[-1][0] if self.begun else ""

    async def kill(self) -> None:
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()


async def within_a_minute(condition: Callable[[], bool]) -> None:
    """Wait until it holds: a killed member is noticed only after some seconds."""
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - processes have no event to wait for
            await asyncio.sleep(0.05)


async def feed(client: Client, published: list[str]) -> None:
    """Publish, a little less than two members handle, until cancelled."""
    while True:
        number = len(published)
        await client.publish("s", b"%d" % number, b"%d" % (number % 40))
        published.append(str(number))
        await asyncio.sleep(0.015)


@pytest.mark.timeout(180)
async def test_members_that_are_killed_lose_no_message(
    start_real_server: Callable[[], LiftbridgeNode],
) -> None:
    node = await asyncio.to_thread(start_real_server)
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(Client(node.address))
        await client.create_stream("s")
        workers = [await Worker.start(node, stack) for _ in range(4)]
        published: list[str] = []
        feeding = asyncio.create_task(feed(client, published))

        def all_work() -> bool:
            kinds = Counter(worker.kind for worker in workers)
            return kinds == {"own": 1, "leased": 3} and all(len(each.done) > 3 for each in workers)

        await within_a_minute(all_work)
        [owner] = [each for each in workers if each.kind == "own"]
        holder, *others = [each for each in workers if each is not owner]
        await holder.kill()
        before = [len(each.done) for each in others]
        await within_a_minute(
            lambda: all(len(e.done) > n + 3 for e, n in zip(others, before, strict=True))
        )
        await owner.kill()
        feeding.cancel()
        await asyncio.wait([feeding])
        await within_a_minute(
            lambda: {value for worker in workers for _, value in worker.done} >= {*published}
        )
        done = [value for worker in workers for _, value in worker.done]
        for worker in others:
            worker.process.terminate()
            await worker.process.wait()
        async with client.queue("s", group="g", options=QueueOptions(timeout=30)) as queue:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(2):
                    await anext(queue)
    # What was in flight at the two, and what the owner had not stored in the last 0.3 s.
    assert len(done) - len(published) <= 100


@pytest.mark.timeout(180)
async def test_a_message_that_kills_its_holders_is_a_dead_letter_in_the_end(
    start_real_server: Callable[[], LiftbridgeNode],
) -> None:
    node = await asyncio.to_thread(start_real_server)
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(Client(node.address))
        await client.create_stream("s")
        await client.create_stream("dead")
        workers = [await Worker.start(node, stack, "dead") for _ in range(3)]
        ended: list[Worker] = []
        published: list[str] = []
        feeding = asyncio.create_task(feed(client, published))
        await within_a_minute(lambda: all(len(each.done) > 3 for each in workers))
        await client.publish("s", b"poison")
        letters: dict[bytes, Message] = {}
        async with asyncio.timeout(90):
            while b"poison" not in letters:
                await asyncio.sleep(0.1)
                for worker in [each for each in workers if each.process.returncode is not None]:
                    workers.remove(worker)
                    ended.append(worker)
                    feeding.cancel()
                    workers.append(await Worker.start(node, stack, "dead"))
                letters = {each.value: each async for each in client.read("dead")}
        await asyncio.wait([feeding])

        def settled() -> bool:
            done = {value for worker in (*workers, *ended) for _, value in worker.done}
            return done | {value.decode() for value in letters} >= {*published}

        await within_a_minute(settled)
        assert letters[b"poison"].headers["queue-attempts"] == b"2"
        assert {each.begun[-1][1] for each in ended} == {"poison"}
        assert len(ended) >= 2


@asynccontextmanager
async def borrower(client: Client, nats: str, owner: Worker) -> AsyncIterator[Queue[Delivery]]:
    """A member beside an owner: another one, until the server leaves the partition to that."""
    while True:
        async with client.queue(
            "s", group="g", options=QueueOptions(nats=nats, timeout=30)
        ) as queue:
            await within_a_minute(lambda: queue._member.epoch == owner.epoch)
            if not queue.assignment:
                yield queue
                return


@pytest.mark.timeout(120)
async def test_an_answer_to_an_owner_that_was_killed_is_refused(
    start_real_server: Callable[[], LiftbridgeNode],
) -> None:
    node = await asyncio.to_thread(start_real_server)
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(Client(node.address))
        await client.create_stream("s")
        worker = await Worker.start(node, stack)
        await client.publish("s", b"first")
        await within_a_minute(lambda: bool(worker.done))
        queue = await stack.enter_async_context(borrower(client, node.nats_url, worker))
        for number in range(40):
            await client.publish("s", b"%d" % number)
        [held] = await take(queue)
        await within_a_minute(lambda: len(worker.done) == 40)  # all but one
        await worker.kill()
        with pytest.raises(LeaseExpired):
            await held.ack()
        async with asyncio.timeout(60):
            async for delivery in queue:  # whose partition it is now
                await delivery.ack()
                if delivery.value == held.value:
                    break


@pytest.mark.timeout(60)
async def test_nothing_is_leased_while_nats_is_away(
    real_server: LiftbridgeNode, stream_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    spy = NatsConnection()
    await spy.connect(real_server.nats_url)
    subjects: set[str] = set()

    async def note(arrived: Any) -> None:
        subjects.add(arrived.subject)

    await spy.subscribe(f"{SUBJECTS}.>", cb=note)
    async with (
        Client(real_server.address) as client,
        FaultProxy(f"{real_server.host}:{real_server.nats_port}") as proxy,
    ):
        await client.create_stream(stream_name)
        await publish(client, stream_name, 0, 3)
        nats = f"nats://{proxy.address}"
        async with members(client, stream_name, nats, ack_wait=60) as (owner, other):
            [kept, *_] = await take(other, 3)
            await proxy.refuse()
            await proxy.cut()
            answer = asyncio.create_task(kept.ack(sync=True))
            await publish(client, stream_name, 0, 2)
            for delivery in await take(owner, 2):  # which goes on with its own partition
                await delivery.ack()
            waiting = asyncio.create_task(take(other))
            await asyncio.sleep(0.3)
            assert not answer.done()
            assert not waiting.done()

            await proxy.accept()
            async with asyncio.timeout(BOUND):
                await answer
            assert len(subjects) == 3  # that of all, and that of each
            for subject in tuple(subjects):
                for data in (b"", b"hello", b"lbl1\x03abc", b"lbl1\x05" + bytes(400)):
                    await spy.publish(subject, data)  # what no member sends
            await spy.flush()
            await publish(client, stream_name, 0)
            [delivery] = await waiting
            assert delivery.message.offset == 5
            await delivery.ack()
            assert owner.statistics().acked == 4
    await spy.close()
    ignored = [each for each in caplog.messages if each.startswith("ignored a message")]
    assert len(ignored) == 2  # one of each member
