"""Many readings taken from in turn, as one: order is kept within each, not between them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

from .feed import Doorbell

if TYPE_CHECKING:
    from .model import Message
    from .raw_message import RawMessage
    from .reading import Reading

T = TypeVar("T")


class _Place:
    """A reading's place in the line of those that may have something."""

    __slots__ = ("_doorbell", "_line", "_reading")

    def __init__(self, reading: Reading, line: dict[Reading, None], doorbell: Doorbell) -> None:
        self._reading = reading
        self._line = line
        self._doorbell = doorbell

    def ring(self) -> None:
        """Stand in line, and wake the reader."""
        self._line[self._reading] = None
        self._doorbell.ring()


class Merge:
    """Takes messages from readings that come and go; one task takes at a time.

    Readings that have something stand in line, and each gives what it has decoded ahead (some
    hundred messages at most) before the next one's turn, so that a busy partition does not starve
    the others. What a reading costs while it is quiet does not depend on how many there are.

    Args:
        ended: told of a reading that has ended once all that came before was taken; it is no
            longer read then. What it raises is raised to the reader.
        delivered: told of each message handed out; None where nobody wants to know.
        ends_with_last: end when no reading is left; else only `finish` ends it.
    """

    def __init__(
        self,
        ended: Callable[[Reading], None],
        delivered: Callable[[Message], None] | None = None,
        *,
        ends_with_last: bool = False,
    ) -> None:
        self.readings: set[Reading] = set()
        """Those that are read, held ones too."""
        self.ready: deque[Message] = deque()
        """Messages that may be handed out without another look, from the left."""
        self._ended = ended
        self._delivered = delivered
        self._ends_with_last = ends_with_last
        self._line: dict[Reading, None] = {}
        self._held: set[Reading] = set()
        self._in_hand: set[Reading] = set()
        self._doorbell = Doorbell()
        self._finished = False

    @property
    def held(self) -> frozenset[Reading]:
        """The readings from which nothing is taken for now."""
        return frozenset(self._held)

    # Which readings

    def add(self, reading: Reading) -> None:
        """Take from this reading from now on."""
        self.readings.add(reading)
        place = reading.feed.bell = _Place(reading, self._line, self._doorbell)
        place.ring()

    def remove(self, reading: Reading) -> None:
        """Take no more from this reading; what waits of it is the caller's to drop."""
        self.readings.discard(reading)
        self._held.discard(reading)
        reading.feed.bell = Doorbell()
        self._line.pop(reading, None)
        self._put_aside(reading)

    def hold(self, readings: Iterable[Reading]) -> None:
        """Take nothing from these until they are released; the server stops when they are full."""
        for reading in readings:
            self._held.add(reading)
            self._put_aside(reading)

    def release(self, readings: Iterable[Reading]) -> None:
        """Take from these again."""
        for reading in readings:
            self._held.discard(reading)
            reading.feed.bell.ring()

    def finish(self) -> None:
        """End: the reader gets no more than what is there, and is told of the end."""
        self._finished = True
        self._doorbell.ring()

    def wake(self) -> None:
        """Have the reader look again."""
        self._doorbell.ring()

    def _put_aside(self, reading: Reading) -> None:
        if self.ready is reading.intake.ready:
            self.ready = deque()

    # What the reader is done with

    def finished(self, reading: Reading) -> int | None:
        """Return the last offset of a reading with which the reader is done.

        He has the last message or list in hand until he asks for more, also where the reading was
        removed meanwhile.
        """
        intake = reading.intake
        return intake.finished if reading in self._in_hand else intake.handed_over

    def put_down(self) -> None:
        """Take note that the reader is done with everything that was handed out."""
        self._in_hand = set()

    # Reading

    async def take_next(self) -> Message:
        """Return the next message, waiting for it if need be. Cancelling loses none.

        Raises:
            StopAsyncIteration: it has ended, and nothing is left.
            ConcurrentRead: another task is waiting already.
        """
        self.put_down()
        line = self._line
        while True:
            reading = await self._something()
            del line[reading]
            line[reading] = None  # behind all others
            intake = reading.intake
            if intake.refill():
                break
        self._in_hand = {reading}
        message = intake.ready.popleft()
        if self._delivered is None:
            self.ready = intake.ready
        else:
            self._delivered(message)
        return message

    async def take(self, most: int, wait: float) -> list[Message]:
        """Return up to `most` messages and never none; see `Subscription.batches`."""
        messages = await self._take(most, wait, lambda reading, count: reading.intake.take(count))
        if self._delivered is not None:
            for message in messages:
                self._delivered(message)
        return messages

    async def take_raw(self, most: int, wait: float) -> list[RawMessage]:
        """Return up to `most` messages undecoded, and never none."""
        return await self._take(
            most,
            wait,
            lambda reading, count: reading.intake.take_raw(
                count, reading.plan.stream, reading.plan.partition
            ),
        )

    async def _take(
        self, most: int, wait: float, take: Callable[[Reading, int], list[T]]
    ) -> list[T]:
        self.put_down()
        self.ready = deque()
        line = self._line
        taken: list[T] = []
        while not taken:
            await self._gather(most, wait)
            for reading in tuple(line):
                some = [] if reading in self._held else take(reading, most - len(taken))
                if some:
                    taken += some
                    self._in_hand.add(reading)
                    del line[reading]
                    line[reading] = None
                if len(taken) == most:
                    break
        return taken

    async def _gather(self, most: int, wait: float) -> None:
        """Wait for a message, then for more."""
        await self._something()
        if not wait or self._enough(most):
            return
        try:
            async with asyncio.timeout(wait):
                while not self._enough(most):
                    await self._doorbell.wait()
        except TimeoutError:
            pass  # what is there will do

    def _enough(self, most: int) -> bool:
        if self._finished:
            return True
        buffered = 0
        for reading in self._line:
            if reading in self._held:
                continue
            if reading.feed.half_full or reading.feed.ended:
                return True
            buffered += reading.intake.buffered
        return buffered >= most

    async def _something(self) -> Reading:
        """Return the first in line with something to read, waiting for one if need be."""
        while True:
            reading = self._first_in_line()
            if reading is not None:
                return reading
            if self._finished or (self._ends_with_last and not self.readings):
                raise StopAsyncIteration
            await self._doorbell.wait()

    def _first_in_line(self) -> Reading | None:
        line = self._line
        while line:
            reading = next(iter(line))
            if reading not in self._held:
                if reading.intake.buffered:
                    return reading
                reading.intake.give_back()
                if reading.feed.ended:
                    self.remove(reading)
                    self._ended(reading)
                    continue
            line.pop(reading, None)
        return None
