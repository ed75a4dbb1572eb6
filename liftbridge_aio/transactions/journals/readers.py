"""Iterate over the messages of a journal: all of them, or those that are committed."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator
from typing import Final, Generic, Protocol, Self, TypeVar

from liftbridge_aio._core.public_face import as_one_class
from liftbridge_aio.errors import InvalidRequest
from liftbridge_aio.transactions.core.framing import Decoder, framing_for
from liftbridge_aio.transactions.core.mapping import Journal
from liftbridge_aio.transactions.errors import Desynchronised, FramingError, MustStartReplay

from .message import Envelope, Message, NewMessage
from .sequencer import Sequencer

logger = logging.getLogger("liftbridge_aio.transactions")

M = TypeVar("M", bound=Message)

_CHUNK_BYTES: Final = 65_536


class ByteReader(Protocol):
    """The protocol of a source of bytes, such as an asyncio.StreamReader or a file of anyio."""

    async def read(self, size: int, /) -> bytes:
        """Return at most so many bytes; none at the end."""


class Source(Protocol):
    """A journal that can be read, from any offset at which a frame begins."""

    @property
    def journal(self) -> Journal:
        """The journal."""

    def frames(
        self, decoder: Decoder, begin: int, end: int | None
    ) -> AsyncIterator[tuple[int, int, bytes]]:
        """Return frames with the offsets of their begins and ends, in order.

        Args:
            decoder: cuts bytes into frames.
            begin: the first offset.
            end: the offset to read up to; None for all that there is, or comes.
        """


class ByteSource(ABC):
    """A journal of bytes, which frames are cut out of."""

    journal: Journal

    @abstractmethod
    def read(self, begin: int, end: int | None) -> AsyncIterator[tuple[int, bytes]]:
        """Return pieces of the journal with their offsets, in order.

        Args:
            begin: offset of the first byte.
            end: offset after the last one; None for all that there is, or comes.
        """

    async def frames(
        self, decoder: Decoder, begin: int, end: int | None
    ) -> AsyncIterator[tuple[int, int, bytes]]:
        """Return frames with the offsets of their begins and ends, in order.

        Bytes that are no frame are skipped, with a warning.

        Raises:
            TruncatedFrame: the journal ends within a frame.
            FramingError: a frame is too long, or the journal jumps within one.
        """
        position = at = begin  # of the next frame, and of the next bytes
        async for offset, data in self.read(begin, end):
            if offset != at:
                if position != at:
                    raise FramingError(
                        f"{self.journal.name} jumps from offset {at} to {offset} within a frame"
                    )
                logger.warning("%s jumps from offset %d to %d", self.journal.name, at, offset)
                position = offset
            at = offset + len(data)
            if data:
                decoder.feed(data)
                for size, frame in self._cut(decoder):
                    if frame is not None:
                        yield position, position + size, frame
                    position += size
        decoder.feed(b"")
        for size, frame in self._cut(decoder):
            if frame is not None:
                yield position, position + size, frame
            position += size

    def _cut(self, decoder: Decoder) -> Iterator[tuple[int, bytes | None]]:
        """Yield the sizes of frames, and the frames; None for bytes that are none."""
        while True:
            try:
                frame = decoder.next_frame()
            except Desynchronised as error:
                logger.warning("in %s %s", self.journal.name, error)
                yield len(error.skipped), None
                continue
            if frame is None:
                return
            yield len(frame), frame


@as_one_class
class StreamSource(ByteSource):
    """A journal that is read once, from anything with `read`, such as a StreamReader."""

    def __init__(self, journal: Journal, reader: ByteReader, begin: int = 0) -> None:
        """Read a journal.

        Args:
            journal: the journal.
            reader: gives its bytes.
            begin: offset of the first of them.
        """
        self.journal = journal
        self._reader = reader
        self._at = begin

    async def read(self, begin: int, end: int | None) -> AsyncIterator[tuple[int, bytes]]:
        """Return pieces of the journal with their offsets, in order.

        Raises:
            InvalidRequest: it has been read past the begin.
        """
        if begin != self._at:
            raise InvalidRequest(
                f"{self.journal.name} is at offset {self._at} and cannot go to {begin}: give the"
                " sequencer a larger buffer, or use a source that can be read again"
            )
        while data := await self._reader.read(
            _CHUNK_BYTES if end is None else min(_CHUNK_BYTES, end - self._at)
        ):
            self._at += len(data)
            yield self._at - len(data), data


class ReadUncommittedIter(Generic[M]):
    """Iterates over all messages of a journal: also duplicates, and those of no commit."""

    def __init__(
        self, source: Source, new_message: NewMessage[M], begin: int = 0, end: int | None = None
    ) -> None:
        """Read a journal from one offset to before another.

        Args:
            source: the journal.
            new_message: returns an empty message.
            begin: the first offset.
            end: None for all that there is, or comes.

        Raises:
            UnknownFraming: no framing is registered for the content type of the journal.
        """
        self.source = source
        self.new_message = new_message
        self._decoder = framing_for(source.journal.content_type).decoder()
        self._frames = source.frames(self._decoder, begin, end)

    def __aiter__(self) -> Self:
        """Return itself."""
        return self

    async def __anext__(self) -> Envelope[M]:
        """Return the next message. A malformed one may be passed over by asking again.

        Cancelling ends the iteration.

        Raises:
            FramingError: it is malformed.
            Exception: raised by the source, or for a new message.
        """
        begin, end, frame = await anext(self._frames)
        journal = self.source.journal
        message = self.new_message(journal)
        try:
            self._decoder.decode(frame, message)
        except FramingError as error:
            error.add_note(f"in {journal.name} at offset {begin}")
            raise
        return Envelope(journal, begin, end, message)


class ReadCommittedIter(Generic[M]):
    """Iterates over the committed messages of a journal, each once, and their acknowledgements.

    It is a `ReadUncommittedIter` and a `Sequencer` together, and reads the source again where a
    transaction was longer than what the sequencer keeps.
    """

    def __init__(
        self,
        source: Source,
        new_message: NewMessage[M],
        sequencer: Sequencer[M],
        begin: int | None = None,
        end: int | None = None,
    ) -> None:
        """Read a journal.

        Args:
            source: the journal.
            new_message: returns an empty message.
            sequencer: sequences the messages.
            begin: the first offset; None for that of the sequencer, or else 0.
            end: the offset to read up to; None for all that there is, or comes.

        Raises:
            UnknownFraming: no framing is registered for the content type of the journal.
        """
        if begin is None:
            begin = max(sequencer.offsets.get(source.journal.name, 0), 0)
        self.sequencer = sequencer
        self._all = ReadUncommittedIter(source, new_message, begin, end)

    def __aiter__(self) -> Self:
        """Return itself."""
        return self

    async def __anext__(self) -> Envelope[M]:
        """Return the next committed message.

        Cancelling ends the iteration; the sequencer's checkpoint tells where to go on.

        Raises:
            FramingError: a message is malformed.
            Exception: raised by the source, or for a new message.
        """
        while True:
            try:
                committed = await self.sequencer.deque_committed()
            except MustStartReplay:
                _, begin, end = self.sequencer.replay_range()
                again = ReadUncommittedIter(self._all.source, self._all.new_message, begin, end)
                self.sequencer.start_replay(again)
                continue
            if committed is not None:
                return committed
            self.sequencer.queue_uncommitted(await anext(self._all))
