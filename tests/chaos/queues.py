"""A queue among the load of a run: a publisher, members whose handlers fail, and their judge."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from chaos.load import CERTAIN, Load
from liftbridge_aio import AckPolicy, Client, LiftbridgeError, Message, StartAt
from liftbridge_aio.queue import Delivery, Nack, Order

STREAM: Final = "queue"
PARTITIONS: Final = 2
KEYS: Final = 8
MEMBERS: Final = 2
_PAUSE: Final = 0.05
_AGAIN: Final = 0.2
_FAILS: Final = 7
"""One message in so many is refused by its handler at its first attempt."""
_NEVER: Final = float("inf")


class Step(NamedTuple):
    """A handler that began, or ended well."""

    value: bytes
    ended: bool


class Queues:
    """Publishes messages with keys, and handles them in a queue that keeps the order of a key."""

    def __init__(self, load: Load, writer: Client, members: list[Client]) -> None:
        self._load = load
        self._writer = writer
        self._members = members
        self.acked: list[bytes] = []
        """Messages that are stored for sure."""
        self.steps: list[Step] = []
        self.handled: set[bytes] = set()
        self._running: list[asyncio.Task[None]] = []
        self._stopped = False

    # At work

    async def publish(self) -> None:
        """Publish until nothing more is to be published, one message after the other."""
        number = 0
        while self._load.publishing:
            number += 1
            value = b"%d" % number
            began = time.monotonic()
            try:
                await self._writer.publish(
                    STREAM, value, b"key %d" % (number % KEYS), ack_policy=AckPolicy.ALL
                )
            except LiftbridgeError as error:
                self._load.calls.failed("publish to the queue", error)
                if not isinstance(error, CERTAIN):
                    await asyncio.sleep(_AGAIN)
            else:
                self.acked.append(value)
            self._load.calls.ended("publish to the queue", began, time.monotonic(), _NEVER)
            await asyncio.sleep(_PAUSE)

    async def work(self, number: int) -> None:
        """Be a member of the queue until `stop`, and again where that ends."""
        while not self._stopped:
            running = asyncio.create_task(self._run(number))
            self._running.append(running)
            await asyncio.wait([running])
            self._running.remove(running)

    async def _run(self, number: int) -> None:
        what = f"member {number} of the queue"
        try:
            async with self._members[number].queue(
                *(STREAM,),
                group="workers",
                start=StartAt.earliest(),
                order=Order.KEY,
                ack_wait=10,
                max_attempts=0,
                retry=_AGAIN,
            ) as queue:
                await queue.run(self._handle, concurrency=4, stop_on_signals=False)
        except LiftbridgeError as error:
            if not self._stopped:
                self._load.find(f"{what} ended with {error!r}")
                await asyncio.sleep(_AGAIN)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a finding
            self._load.find_untyped(what, error)

    async def _handle(self, delivery: Delivery) -> None:
        value = delivery.value
        self.steps.append(Step(value, ended=False))
        await asyncio.sleep(0)
        if delivery.attempt == 1 and _is_refused(value):
            raise Nack
        self.steps.append(Step(value, ended=True))
        self.handled.add(value)

    def stop(self) -> None:
        """End the members."""
        self._stopped = True
        for each in self._running:
            each.cancel()

    # The end

    @property
    def behind(self) -> bool:
        """True if something that is stored is not handled yet."""
        return not self.handled.issuperset(self.acked)

    async def read_log(self, client: Client) -> list[Message]:
        """Return all that is stored."""
        return [
            message
            for partition in range(PARTITIONS)
            async for message in client.read(STREAM, partition=partition)
        ]

    def judge(self, log: Sequence[Message]) -> tuple[list[str], list[str]]:
        """Return what is wrong, and what the servers have lost."""
        by_key: dict[bytes, list[bytes]] = defaultdict(list)
        for message in log:
            if message.key:  # the witness gives none
                by_key[message.key].append(message.value)
        stored = {message.value for message in log}
        wrong = [
            f"{value!r} is in the queue and was never handled"
            for value in sorted(stored - self.handled)
        ]
        by_servers = [
            f"{value!r} was acked by all, and is lost: {STREAM}"
            for value in self.acked
            if value not in stored
        ]
        return [*wrong, *out_of_order(by_key, self.steps)], by_servers

    def text(self) -> str:
        """Return figures."""
        began = Counter(step.value for step in self.steps if not step.ended)
        refused = sum(map(_is_refused, began))
        repeated = began.total() - len(began) - refused
        return f"{len(self.handled)} handled, {refused} refused once, {repeated} repeated"


def _is_refused(value: bytes) -> bool:
    return value.isdigit() and int(value) % _FAILS == 0


def out_of_order(by_key: Mapping[bytes, Sequence[bytes]], steps: Sequence[Step]) -> list[str]:
    """Return which messages were handed out before an earlier one of their key was handled."""
    before = {
        value: earlier
        for values in by_key.values()
        for earlier, value in zip((None, *values), values, strict=False)
    }
    handled: set[bytes] = set()
    wrong = []
    for value, ended in steps:
        earlier = before.get(value)
        if ended:
            handled.add(value)
        elif earlier is not None and earlier not in handled:
            wrong.append(f"{value!r} was handed out before {earlier!r} of its key was handled")
    return wrong
