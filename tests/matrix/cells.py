"""A cell of the matrix: what an operation is given, and what is seen of how it went."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterable, AsyncIterator, Collection, Coroutine, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from liftbridge_aio import Client, EndReason, LiftbridgeError, Message, Retry
from matrix.worlds import World
from support.raw import Wire

PARTITIONS: Final = (0, 1)
"""Of every stream, until it is created again."""
COUNT: Final = 6
"""Messages that a partition is filled with, unless its state has it otherwise."""
PROBE: Final = b"published in the state"

ALL: Final = "all"
GOES_ON: Final = "goes on"
NOTHING: Final = "nothing"


class On(Enum):
    """Stream that an operation works on."""

    SHARED = auto()
    """One that all cells of a state look at, as it changes nothing there."""
    OWN = auto()
    """One of its own, since it publishes, or waits for what is published."""


Log = dict[int, bytes]
"""The values of a partition by their offsets."""


@dataclass(slots=True)
class Place:
    """A stream that is brought into a state, for one cell or for all that only look.

    Attributes:
        stream: Its name; may be changed while it is created.
        settings: Fields of `StreamOptions`, those that its state wants included.
        on: Whether several cells share it.
        logs: What can be read of each partition.
        ends: The next offset of each partition.
    """

    stream: str
    settings: dict[str, object] = field(default_factory=dict)
    on: On = On.OWN
    logs: dict[int, Log] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)

    def holds(self, logs: Mapping[int, Log]) -> None:
        """Note what is stored from now on."""
        self.logs = dict(logs)
        self.ends = {partition: len(log) for partition, log in logs.items()}

    def keeps(self, offsets: Collection[int]) -> None:
        """Note that of what is stored only this is left."""
        self.logs = {
            partition: {at: value for at, value in log.items() if at in offsets}
            for partition, log in self.logs.items()
        }


@dataclass(slots=True)
class Stage:
    """Parts shared by all cells of a state.

    Attributes:
        world: The servers.
        director: The client that brings the state about and publishes probes.
        wire: A connection without any client.
        later: What goes on while the operations do.
        looked: Set when all operations that only look have ended.
    """

    world: World
    director: Client
    wire: Wire
    later: list[asyncio.Task[None]] = field(default_factory=list)
    looked: asyncio.Event = field(default_factory=asyncio.Event)

    def meanwhile(self, work: Coroutine[None, None, None]) -> None:
        """Have something go on while the operations do."""
        self.later.append(asyncio.create_task(work))


@dataclass(slots=True)
class Cell:
    """One operation in one state.

    Attributes:
        stage: What it shares with others.
        place: The stream it works on.
        user: Its own client, which knew the stream before the state arose.
        begun: Set by an operation that begins before anything is published, when it has.
        filled: Set when everything is published.
        ready: Set when it has read everything, and the state may arise.
    """

    stage: Stage
    place: Place
    user: Client
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    filled: asyncio.Event = field(default_factory=asyncio.Event)
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    not_probed: str = ""
    """Why a probe could not be published, where one could not."""
    _arisen: asyncio.Event = field(default_factory=asyncio.Event)
    _limit: asyncio.Timeout = field(default_factory=lambda: asyncio.timeout(None))
    _began: float = 0.0

    @property
    def stream(self) -> str:
        return self.place.stream

    @property
    def hangs(self) -> bool:
        """True if its time was up."""
        return self._limit.expired()

    @property
    def seconds(self) -> float:
        """Seconds since it began, or since the state arose under it."""
        return asyncio.get_running_loop().time() - self._began

    def bounded(self, seconds: float) -> asyncio.Timeout:
        """Begin: what is done inside has so much time."""
        self._began = asyncio.get_running_loop().time()
        self._limit = asyncio.timeout_at(self._began + seconds)
        return self._limit

    def state_has_arisen(self, seconds: float) -> None:
        """Let it go on from its middle, with so much time."""
        self._began = asyncio.get_running_loop().time()
        self._limit.reschedule(self._began + seconds)
        self._arisen.set()

    async def until_arisen(self) -> None:
        """Say that the operation is in its middle, and wait until the state has arisen."""
        self.ready.set()
        await self._arisen.wait()

    @asynccontextmanager
    async def probing(self, partitions: Iterable[int]) -> AsyncIterator[asyncio.Task[int]]:
        """Probe meanwhile."""
        task = asyncio.create_task(self.probe(partitions))
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.wait([task])

    async def probe(self, partitions: Iterable[int]) -> int:
        """Publish a message to each of these; return to how many that was possible.

        Where servers crash meanwhile, again when they are back for good: what is acked before a
        crash may show only once more is published.
        """
        count = await self._publish_probes(partitions)
        if self.stage.later:
            await asyncio.wait(self.stage.later)
            count = await self._publish_probes(partitions)
        return count

    async def _publish_probes(self, partitions: Iterable[int]) -> int:
        async def publish(partition: int) -> bool:
            try:
                await self.stage.director.publish(
                    self.stream, PROBE, partition=partition, retry=Retry(attempts=50)
                )
            except LiftbridgeError as error:
                self.not_probed = type(error).__name__
                return False
            return True

        return sum(await asyncio.gather(*map(publish, partitions)))

    def end_of(self, partition: int = 0) -> int:
        """The offset that the next message gets."""
        return self.place.ends.get(partition, 0)


def seen(cell: Cell, messages: Iterable[Message], *, start: Mapping[int, int] | int = 0) -> str:
    """Say whether just what the log holds was read, from the start on, once and in order."""
    partitions = start if isinstance(start, Mapping) else dict.fromkeys(cell.place.logs, start)
    found: dict[int, list[tuple[int, bytes]]] = defaultdict(list)
    for message in messages:
        found[message.partition].append((message.offset, message.value))
    wanted = {
        partition: [
            (at, value) for at, value in cell.place.logs.get(partition, {}).items() if at >= first
        ]
        for partition, first in partitions.items()
    }
    wanted = {partition: log for partition, log in wanted.items() if log}
    if found != wanted:
        return f"read {_short(found)} instead of {_short(wanted)}"
    return ALL if wanted else NOTHING


def _short(logs: Mapping[int, list[tuple[int, bytes]]]) -> str:
    return str(
        {partition: [(at, value[:20]) for at, value in log] for partition, log in logs.items()}
    )


async def read_to_end(cell: Cell, reading: AsyncIterator[Message]) -> int:
    """Read partition 0 up to the last message, as earlier ones may be compacted by then.

    Returns:
        The offset of the message that comes next.
    """
    end = cell.end_of()
    if end:
        async for message in reading:
            if message.offset == end - 1:
                break
    return end


async def until_probes(
    cell: Cell, reading: AsyncIterable[Message], *, start: Mapping[int, int]
) -> str:
    """Probe the partitions that are read and read until all probes have come, or to the end.

    Returns:
        `goes on` if everything before the probes came as it should, else what came.
    """
    partitions = set(start)
    messages: list[Message] = []
    async with cell.probing(start):
        async for message in reading:
            if message.value == PROBE:
                partitions.discard(message.partition)
                if not partitions:
                    result = seen(cell, messages, start=start)
                    return GOES_ON if result in {ALL, NOTHING} else result
            else:
                messages.append(message)
    return seen(cell, messages, start=start)


def ended(result: str, reason: EndReason | None) -> str:
    """Add to what was read why it ended, where that is not what a bounded reading is for."""
    return f"{result}, read-only" if reason is EndReason.READONLY else result
