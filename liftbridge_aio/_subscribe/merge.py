"""Takes messages from many readers in turn, in order within each, not between them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

from liftbridge_aio.errors import ConcurrentRead

from .receive_buffer import Bell, Doorbell

if TYPE_CHECKING:
    from liftbridge_aio.model import Message
    from liftbridge_aio.wire.raw_message import RawMessage

    from .partition_reader import PartitionReader

T = TypeVar("T")


class _ReaderBell:
    """Puts a reader in line when it may have messages."""

    __slots__ = ("_merge", "_reader")

    def __init__(self, reader: PartitionReader, merge: Merge) -> None:
        self._reader = reader
        self._merge = merge

    def ring(self) -> None:
        """Put the reader in line and wake the waiting task, unless the reader is held."""
        self._merge.line_up(self._reader)


class Merge:
    """Takes messages from readers that are added and removed; one task takes at a time.

    Readers with messages are in line. Each gives what it has decoded ahead (some hundred messages
    at most) before the next one's turn, so that a busy partition does not starve the others. The
    cost of a quiet reader does not depend on their number.

    Args:
        ended: called for a reader that has ended, once its messages were taken; it is removed. An
            exception from it is raised to the task that takes.
        delivered: called for each delivered message; None if no hook wants it.
        ends_with_last: end when no reader is left; otherwise only `finish` ends it.
    """

    def __init__(
        self,
        ended: Callable[[PartitionReader], None],
        delivered: Callable[[Message], None] | None = None,
        *,
        ends_with_last: bool = False,
    ) -> None:
        self.readers: set[PartitionReader] = set()
        """The readers, those that are held too."""
        self.ready: deque[Message] = deque()
        """Messages that may be delivered without a check, from the left."""
        self._ended = ended
        self._delivered = delivered
        self._ends_with_last = ends_with_last
        self._line: dict[PartitionReader, None] = {}
        self._held: set[PartitionReader] = set()
        self._in_hand: set[PartitionReader] = set()
        self._doorbell = Doorbell()
        self._bell: Bell = self._doorbell
        self._finished = False

    @property
    def held(self) -> frozenset[PartitionReader]:
        """The readers from which nothing is taken for now."""
        return frozenset(self._held)

    # Readers

    def add(self, reader: PartitionReader) -> None:
        """Take messages from this reader from now on."""
        self.readers.add(reader)
        bell = reader.buffer.bell = _ReaderBell(reader, self)
        bell.ring()

    def remove(self, reader: PartitionReader) -> None:
        """Take no more from this reader; the caller drops what it has buffered."""
        self.readers.discard(reader)
        self._held.discard(reader)
        reader.buffer.bell = Doorbell()
        self._line.pop(reader, None)
        self._put_aside(reader)

    def hold(self, readers: Iterable[PartitionReader]) -> None:
        """Take nothing from these until they are released; full ones stop the server."""
        for reader in readers:
            self._held.add(reader)
            self._line.pop(reader, None)
            self._put_aside(reader)

    def release(self, readers: Iterable[PartitionReader]) -> None:
        """Take messages from these again."""
        for reader in readers:
            self._held.discard(reader)
            if reader.decoder.buffered or reader.buffer.over:
                reader.buffer.bell.ring()
            else:
                reader.decoder.release_delivered()

    def line_up(self, reader: PartitionReader) -> None:
        """Put a reader in line that may have messages; one that is held follows when released."""
        if reader not in self._held:
            self._line[reader] = None
            self._bell.ring()

    def finish(self) -> None:
        """End once everything that is buffered was taken."""
        self._finished = True
        self._bell.ring()

    def wake(self) -> None:
        """Wake the task that waits for messages."""
        self._bell.ring()

    def _put_aside(self, reader: PartitionReader) -> None:
        if self.ready is reader.decoder.ready:
            self.ready = deque()

    # Several tasks that take turns with readers

    @property
    def is_finished(self) -> bool:
        """True once `finish` was called."""
        return self._finished

    @property
    def has_line(self) -> bool:
        """True if a reader is in line; it may turn out to have nothing."""
        return bool(self._line)

    @property
    def has_messages(self) -> bool:
        """True if a reader in line has messages."""
        return any(reader.decoder.buffered for reader in self._line)

    def share(self, bell: Bell) -> None:
        """Ring `bell` for each reader that lines up, until `unshare`; nobody else may take then.

        Raises:
            ConcurrentRead: a task waits for messages already.
        """
        if self._bell is not self._doorbell or self._doorbell.awaited:
            raise ConcurrentRead("two tasks read the same subscription")
        self.put_down()
        self.ready = deque()
        self._bell = bell

    def unshare(self) -> None:
        """Wake the one task that takes again."""
        self._bell = self._doorbell

    def next_in_line(self) -> PartitionReader | None:
        """Return the next reader with decoded messages, now behind the others; None if none has.

        Raises:
            Exception: from `ended`, for a reader that has ended.
        """
        while (reader := self.first_in_line()) is not None:
            del self._line[reader]
            self._line[reader] = None
            if reader.decoder.refill():
                return reader
        return None

    def pick_up(self, reader: PartitionReader) -> None:
        """Count the last message of a reader as in hand, until it is put down."""
        self._in_hand.add(reader)

    # What is finished

    def finished(self, reader: PartitionReader) -> int | None:
        """Return the last finished offset of a reader.

        The message or list that was delivered last is finished once the next one is requested, also
        if the reader was removed meanwhile.
        """
        decoder = reader.decoder
        return decoder.finished if reader in self._in_hand else decoder.last_delivered

    def put_down(self, reader: PartitionReader | None = None) -> None:
        """Count what was delivered as finished, of one reader or of all."""
        if reader is None:
            self._in_hand = set()
        else:
            self._in_hand.discard(reader)

    # Reading

    async def take_next(self) -> Message:
        """Return the next message; wait for it if none is buffered. Cancelling loses none.

        Raises:
            StopAsyncIteration: it has ended.
            ConcurrentRead: another task is waiting already.
        """
        self.put_down()
        line = self._line
        while True:
            reader = await self._something()
            del line[reader]
            line[reader] = None  # behind all others
            decoder = reader.decoder
            if decoder.refill():
                break
        self._in_hand = {reader}
        message = decoder.ready.popleft()
        if self._delivered is None:
            self.ready = decoder.ready
        else:
            self._delivered(message)
        return message

    async def take(self, most: int, wait: float) -> list[Message]:
        """Return up to `most` messages, at least one; see `MessageSource.batches`."""
        messages = await self._take(most, wait, lambda reader, count, _: reader.decoder.take(count))
        if self._delivered is not None:
            for message in messages:
                self._delivered(message)
        return messages

    async def take_as(
        self, most: int, wait: float, convert: Callable[[Message], T | None]
    ) -> list[T]:
        """Return the results of `convert` for up to `most` messages; see `Decoder.take_as`.

        Raises:
            Exception: what `convert` raises for the first message.
        """
        return await self._take(
            most,
            wait,
            lambda reader, count, first: reader.decoder.take_as(
                count, convert, self._delivered, may_raise=first
            ),
        )

    async def take_raw(self, most: int, wait: float) -> list[RawMessage]:
        """Return up to `most` messages undecoded, at least one."""
        return await self._take(
            most,
            wait,
            lambda reader, count, _: reader.decoder.take_raw(
                count, reader.plan.stream, reader.plan.partition
            ),
        )

    async def _take(
        self, most: int, wait: float, take: Callable[[PartitionReader, int, bool], list[T]]
    ) -> list[T]:
        line = self._line
        taken: list[T] = []
        while not taken:
            self.put_down()
            self.ready = deque()
            await self._gather(most, wait)
            for reader in tuple(line):
                try:
                    some = take(reader, most - len(taken), not taken)
                except Exception:
                    self._handed_out(reader)
                    raise
                if some:
                    taken += some
                    self._handed_out(reader)
                if len(taken) == most:
                    break
        return taken

    def _handed_out(self, reader: PartitionReader) -> None:
        """Note that messages of this reader are in hand, and put it behind the others."""
        self._in_hand.add(reader)
        del self._line[reader]
        self._line[reader] = None

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
            pass  # return what is buffered

    def _enough(self, most: int) -> bool:
        if self._finished:
            return True
        buffered = 0
        for reader in self._line:
            if reader.buffer.half_full or reader.buffer.over:
                return True
            buffered += reader.decoder.buffered
        return buffered >= most

    async def _something(self) -> PartitionReader:
        """Return the first reader in line with messages; wait for one if there is none."""
        while True:
            reader = self.first_in_line()
            if reader is not None:
                return reader
            if self._finished or (self._ends_with_last and not self.readers):
                raise StopAsyncIteration
            await self._doorbell.wait()

    def first_in_line(self) -> PartitionReader | None:
        """Return the first reader in line with messages; None if there is none.

        Raises:
            Exception: from `ended`, for a reader that has ended.
        """
        line = self._line
        while line:
            reader = next(iter(line))
            if reader.decoder.buffered:
                return reader
            reader.decoder.release_delivered()
            if reader.buffer.over:
                self.remove(reader)
                self._ended(reader)
            else:
                del line[reader]
        return None
