"""Queues among the load of a run: a publisher, members whose handlers fail, and their judge."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, Final, NamedTuple

from chaos.load import CERTAIN, Load
from liftbridge_aio import AckPolicy, Client, LiftbridgeError, StartAt
from liftbridge_aio.queue import Delivery, Nack, Order, Queue

STREAM: Final = "queue"
LEASED_STREAM: Final = "leased"
"""Has one partition, and members that share it over NATS."""
PARTITIONS: Final = 2
KEYS: Final = 8
_WORK: Final = 0.15
"""Seconds that the handlers of a shared partition take: too many for its owner alone."""
_PAUSE: Final = 0.05
_AGAIN: Final = 0.2
_CATCH_UP: Final = 10.0
"""Seconds for what was stored and not acked to the publisher."""
_ENOUGH: Final = 100
"""Messages of which some must have been leased."""
_FAILS: Final = 7
"""One message in so many is refused by its handler at its first attempt."""
_NEVER: Final = float("inf")


class Step(NamedTuple):
    """A handler that began, or ended well."""

    value: bytes
    ended: bool


class Queues:
    """Publishes messages with keys, and handles them in a queue that keeps the order of a key.

    Args:
        load: what is noted.
        writer: the client that publishes.
        members: the clients of the members.
        nats: the NATS server over which they share one partition; None: they have two.
    """

    def __init__(
        self, load: Load, writer: Client, members: list[Client], nats: str | None = None
    ) -> None:
        self._load = load
        self._writer = writer
        self._members = members
        self._nats = nats
        self._stream = STREAM if nats is None else LEASED_STREAM
        self._partitions = PARTITIONS if nats is None else 1
        self._what = f"queue {self._stream!r}"
        self._queues: dict[int, Queue[Delivery]] = {}
        """The last queue of each member."""
        self.acked: list[bytes] = []
        """Messages that are stored for sure."""
        self.steps: list[Step] = []
        self.handled: set[bytes] = set()
        self._given: dict[tuple[int, int], bytes] = {}
        """What was handed out last, by partition and offset."""
        self.leased = 0
        """Messages that were handed to members which do not own their partition."""
        self._running: list[asyncio.Task[None]] = []
        self._stopped = False

    # At work

    def work(self) -> list[Coroutine[Any, Any, None]]:
        """Return all that goes on at once."""
        return [self._publish(), *map(self._work, range(len(self._members)))]

    async def _publish(self) -> None:
        """Publish until nothing more is to be published, one message after the other."""
        what = f"publish to {self._what}"
        number = 0
        while self._load.publishing:
            number += 1
            value = b"%d" % number
            began = time.monotonic()
            try:
                await self._writer.publish(
                    self._stream, value, b"key %d" % (number % KEYS), ack_policy=AckPolicy.ALL
                )
            except LiftbridgeError as error:
                self._load.calls.failed(what, error)
                if not isinstance(error, CERTAIN):
                    await asyncio.sleep(_AGAIN)
            else:
                self.acked.append(value)
            self._load.calls.ended(what, began, time.monotonic(), _NEVER)
            await asyncio.sleep(_PAUSE)

    async def _work(self, number: int) -> None:
        """Be a member of the queue until `stop`, and again where that ends."""
        while not self._stopped:
            running = asyncio.create_task(self._run(number))
            self._running.append(running)
            await asyncio.wait([running])
            self._running.remove(running)

    async def _run(self, number: int) -> None:
        what = f"member {number} of {self._what}"
        try:
            async with self._members[number].queue(
                self._stream,
                group=f"{self._stream}-workers",
                start=StartAt.earliest(),
                order=Order.KEY,
                ack_wait=10,
                max_attempts=0,
                retry=_AGAIN,
                nats=self._nats,
            ) as queue:
                self._queues[number] = queue
                concurrency = 4 if self._nats is None else 2
                await queue.run(self._handle, concurrency=concurrency, stop_on_signals=False)
        except LiftbridgeError as error:
            if not self._stopped:
                self._load.find(f"{what} ended with {error!r}")
                await asyncio.sleep(_AGAIN)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a finding
            self._load.find_untyped(what, error)

    async def _handle(self, delivery: Delivery) -> None:
        value = delivery.value
        self.steps.append(Step(value, ended=False))
        self._given[delivery.partition, delivery.offset] = value
        self.leased += delivery.answers.is_remote
        await asyncio.sleep(0 if self._nats is None else _WORK)
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

    async def judge(self, client: Client) -> tuple[list[str], list[str]]:
        """Return what is wrong, and what the servers have lost.

        Raises:
            LiftbridgeError: the log could not be read.
        """
        by_key: dict[bytes, list[bytes]] = defaultdict(list)
        stored, replaced = set[bytes](), set[bytes]()
        for partition in range(self._partitions):
            async for message in client.read(self._stream, partition=partition):
                stored.add(message.value)
                if self._given.get((partition, message.offset), message.value) != message.value:
                    replaced.add(message.value)
                if message.key:  # the witness gives none
                    by_key[message.key].append(message.value)
        until = time.monotonic() + _CATCH_UP
        while stored - self.handled - replaced and time.monotonic() < until:  # noqa: ASYNC110 - it is a test
            await asyncio.sleep(_PAUSE)
        unhandled = sorted(stored - self.handled)
        wrong = [
            f"{value!r} is in {self._what} and was never handled"
            for value in unhandled
            if value not in replaced
        ]
        if wrong:
            wrong += self.last_words()
        if self._nats is not None and not self.leased and len(self.handled) >= _ENOUGH:
            wrong.append(f"no message of {self._what} was leased")
        by_servers = [
            f"{value!r} was acked by all, and is lost: {self._stream}"
            for value in self.acked
            if value not in stored
        ]
        by_servers += [
            f"{value!r} was never handled, as it replaced one that was lost: {self._stream}"
            for value in unhandled
            if value in replaced
        ]
        return [*wrong, *out_of_order(by_key, self.steps)], by_servers

    def last_words(self) -> list[str]:
        """Return what the members wait for."""
        return [
            f"member {number} of {self._what}: {text}"
            for number, queue in self._queues.items()
            for text in queue.explain()
        ]

    def text(self) -> str:
        """Return figures."""
        began = Counter(step.value for step in self.steps if not step.ended)
        refused = sum(map(_is_refused, began))
        repeated = began.total() - len(began) - refused
        return (
            f"{len(self.handled)} handled, {refused} refused once, {repeated} repeated,"
            f" {self.leased} leased"
        )


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
