"""Messages that flow while something breaks, each of which is accounted for in the end."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from liftbridge_aio import (
    AckPolicy,
    Client,
    LiftbridgeError,
    Message,
    PublishOutcomeUnknown,
    Retry,
    StartAt,
)
from liftbridge_aio.testing import History, check_history
from support.faults import BOUND, eventually

END: Final = b"the end"
PATIENT: Final = Retry(attempts=50)
_numbers = itertools.count()


class Traffic:
    """Publishes and reads until it is told to stop; errors of the client are results.

    Args:
        client: publishes and reads.
        stream: whose partition 0 it uses.
        policy: of its publishes.
        bound: seconds that anything waited for may take.
        publish_bound: seconds that a publish may take, whether it ends well or not.
        pause: seconds between two publishes of a publisher.
        size: of each value, in bytes at least.
        options: of each publish.

    Attributes:
        history: of all that was sent and delivered.
        acked: the offset of each value that was acked.
        unknown: values that may be stored or not.
        refused: how values ended that are certainly not stored.
        read: what was delivered.
        lost: how subscriptions ended, each of which was followed by another one.
    """

    def __init__(
        self,
        client: Client,
        stream: str,
        *,
        policy: AckPolicy = AckPolicy.LEADER,
        bound: float = BOUND,
        publish_bound: float = float("inf"),
        pause: float = 0.0,
        size: int = 0,
        **options: Any,
    ) -> None:
        self._client = client
        self._stream = stream
        self._bound = bound
        self._publish_bound = publish_bound
        self._pause = pause
        self._size = size
        self._options = {"ack_policy": policy, **options}
        self._now = asyncio.get_running_loop().time
        self._stopping = asyncio.Event()
        self.history = History(clock=self._now)
        self.acked: dict[bytes, int] = {}
        self.unknown: dict[bytes, PublishOutcomeUnknown] = {}
        self.refused: dict[bytes, LiftbridgeError] = {}
        self.read: list[Message] = []
        self.lost: list[LiftbridgeError] = []

    async def publish(self) -> None:
        """Publish one message after the other until `stop`; several tasks may."""
        producer = f"publisher {next(_numbers)}"
        while not self._stopping.is_set():
            value = (b"%d" % next(_numbers)).ljust(self._size, b".")
            began = self._now()
            self.history.sent(value, 0, producer=producer)
            try:
                ack = await self._client.publish(self._stream, value, **self._options)
            except PublishOutcomeUnknown as error:
                self.unknown[value] = error
                self.history.unknown(value, 0, producer=producer)
            except LiftbridgeError as error:
                self.refused[value] = error
                self.history.refused(value, 0, producer=producer)
            else:
                self.acked[value] = ack.offset
                self.history.acked(value, 0, producer=producer)
            assert self._now() - began <= self._publish_bound
            await asyncio.sleep(0 if value in self.acked else 0.005)
            await asyncio.sleep(self._pause)

    async def tail(self) -> None:
        """Read until the end has come; subscribe again where a subscription ended for good."""
        while not self.read or self.read[-1].value != END:
            start = StartAt.offset(self.read[-1].offset + 1) if self.read else StartAt.earliest()
            try:
                async for message in self._client.subscribe(self._stream, start=start):
                    self.read.append(message)
                    self.history.delivered(message.value, 0, offset=message.offset, reader="tail")
                    if message.value == END:
                        break
            except LiftbridgeError as error:
                self.lost.append(error)
            await asyncio.sleep(0.005)

    async def more(self, count: int = 20) -> None:
        """Wait until so many more messages have been acked."""
        enough = len(self.acked) + count
        await eventually(lambda: len(self.acked) >= enough, self._bound)

    def stop(self) -> None:
        """Publish no more."""
        self._stopping.set()

    def check(self, stored: Sequence[Message]) -> None:
        """Check that what was acked is stored, and what is stored was read once and in order."""
        self.history.finished(0, reader="tail")
        check_history(self.history).raise_for_defects()
        assert self.acked.items() <= {each.value: each.offset for each in stored}.items()
        if self.read:
            assert [(m.offset, m.value) for m in self.read] == [(m.offset, m.value) for m in stored]


@asynccontextmanager
async def flowing(
    client: Client,
    stream: str,
    *,
    witness: Client | None = None,
    publishers: int = 1,
    bound: float = BOUND,
    **settings: Any,
) -> AsyncIterator[Traffic]:
    """Let messages flow meanwhile, and account for each of them in the end, when all is well.

    Args:
        client: what it publishes and reads with.
        stream: exists.
        witness: a client that nothing happens to; None: `client` itself.
        publishers: tasks that publish.
        bound: seconds that anything waited for may take.
        settings: see `Traffic`.
    """
    witness = witness or client
    flow = Traffic(client, stream, bound=bound, **settings)
    async with asyncio.timeout(4 * bound), asyncio.TaskGroup() as tasks:
        publishing = [tasks.create_task(flow.publish()) for _ in range(publishers)]
        reading = tasks.create_task(flow.tail())
        await eventually(lambda: flow.read, bound)
        yield flow
        await flow.more()
        flow.stop()
        await asyncio.gather(*publishing)
        flow.history.sent(END, 0, producer="witness")
        await witness.publish(stream, END, ack_policy=AckPolicy.ALL, retry=PATIENT)
        flow.history.acked(END, 0, producer="witness")
        await reading
        stored = [message async for message in witness.read(stream)]
    # The last message may have been stored twice.
    flow.check(stored[: [message.value for message in stored].index(END) + 1])
