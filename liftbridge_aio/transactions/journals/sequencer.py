"""The sequencer of committed messages, under the names of Gazette's published guide."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from typing import TypeVar

from liftbridge_aio.errors import InvalidRequest
from liftbridge_aio.transactions.core import sequencer
from liftbridge_aio.transactions.core.sequencer import Outcome, ProducerState, ReplayRange
from liftbridge_aio.transactions.errors import MustStartReplay

from .message import Envelope, Message

M = TypeVar("M", bound=Message)


class Sequencer(sequencer.Sequencer[Envelope[M]]):
    """Sequences uncommitted messages into committed ones.

    After each `queue_uncommitted` call `deque_committed` until it returns None. When it raises
    `MustStartReplay`, pass `start_replay` a reader of `replay_range()`, and go on.
    """

    def __init__(
        self,
        states: Iterable[ProducerState] = (),
        buffer: int = 8192,
        *,
        offsets: Mapping[str, int] | None = None,
        strict: bool = False,
    ) -> None:
        """Begin with the producer states of a checkpoint, or without any.

        Args:
            states: from `producer_states`.
            buffer: messages of open transactions that are kept in memory, at least 1.
            offsets: for each journal the offset of the first message that was not read.
            strict: refuse what Gazette's rule discards; see `core.sequencer.Sequencer`.

        Raises:
            InvalidRequest: the buffer is below 1.
        """
        super().__init__(offsets, states, max_messages=buffer, strict=strict)
        self._replay: AsyncIterator[Envelope[M]] | None = None

    def queue_uncommitted(self, envelope: Envelope[M]) -> Outcome:
        """Take the next message of a journal, and return what it does; see `queue`."""
        journal, begin, end, message = envelope
        return self.queue(journal.name, message.get_uuid(), begin, end, envelope)

    async def deque_committed(self) -> Envelope[M] | None:
        """Return the next committed message, None after the last one.

        Cancelling loses no message, unless the reader of the replay does.

        Raises:
            MustStartReplay: messages that are no longer in memory must be read again.
            ReplayMismatch: the reader of the replay gave a message of another range.
        """
        if self._replay is not None:
            async for envelope in self._replay:
                journal, begin, end, message = envelope
                if self.replay(journal.name, message.get_uuid(), begin, end, envelope):
                    return envelope
            self._replay = None
            self.end_replay()
        if self.must_replay:
            begin, end = self.replay_range()[1:]
            raise MustStartReplay(
                f"the messages from offset {begin} to before {end} must be read again"
            )
        committed = self.step()
        return None if committed is None else committed.message

    def start_replay(self, replay: AsyncIterator[Envelope[M]]) -> None:
        """Go on with a reader of all messages of `replay_range()`.

        Raises:
            InvalidRequest: nothing is to be read again.
        """
        self.replay_range()
        self._replay = replay

    def producer_states(self, horizon: float = 0) -> list[ProducerState]:
        """Return the producer states to begin another sequencer with.

        Args:
            horizon: seconds; see `checkpoint`.

        Raises:
            InvalidRequest: committed messages remain; `checkpoint` may be called at any moment.
        """
        if self.is_stepping:
            raise InvalidRequest("committed messages remain: call deque_committed() until None")
        return self.checkpoint(horizon)[1]


__all__ = ["Outcome", "ProducerState", "ReplayRange", "Sequencer"]
