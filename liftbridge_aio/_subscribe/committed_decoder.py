"""Shows what is committed of the messages that a `Decoder` decodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NoReturn

from liftbridge_aio.errors import LiftbridgeError, UsageError
from liftbridge_aio.model import Message
from liftbridge_aio.wire.codec import decode_messages
from liftbridge_aio.wire.marked_batch import MarkedBatch, read_marked

from .core.visibility import Replay, Shown, Visibility
from .decoder import ALL_KEPT, BATCH, Decoder, DecoderListener, Progress
from .receive_buffer import ReceiveBuffer

_READ_AT_ONCE: Final = 512
"""Messages whose marks are read together, at most: few enough to stay in the processor's cache."""


class CommittedDecoder(Decoder):
    """Delivers messages at the positions at which they are shown.

    Decoding goes on by the offsets of the log; what was delivered and what is finished are
    positions. Messages of open transactions are released at once, so that a transaction may be
    larger than the buffer; `Visibility` bounds how many it keeps.

    Args:
        buffer: as of a `Decoder`, as are the next two.
        listener: see there.
        account: see there.
        visibility: decides what is shown.
        start_replay: called with what must be read again; then `replayed` or `replay_failed` is
            called, or everything is discarded.
    """

    def __init__(
        self,
        buffer: ReceiveBuffer,
        listener: DecoderListener,
        account: Callable[[int], None],
        visibility: Visibility,
        start_replay: Callable[[CommittedDecoder, Replay], None],
    ) -> None:
        super().__init__(buffer, listener, account)
        self._visibility = visibility
        self._start_replay = start_replay
        self._positions: list[int] = []
        """Of messages that were delivered, then of those in `ready`, then of those not decoded."""
        self._undecoded: list[bytes] = []
        """Messages that are shown; they are decoded as they are delivered."""
        self._decoded = 0
        """Number of these that are decoded."""
        self._steps: Iterator[Shown | Replay] = iter(())
        """Messages shown by the decoded ones that are not looked at yet."""
        self._replay: Replay | None = None
        """The span that is being read again."""
        self._first: int | None = None
        self._discarded: tuple[int | None, int | None, Progress] | None = None
        """Delivered and finished messages when the rest was discarded, and `progress`."""

    @property
    def _shown(self) -> int:
        """Number of undelivered messages that are shown."""
        return len(self.ready) + len(self._undecoded) - self._decoded

    @property
    def _delivered(self) -> int:
        """Number of `_positions` that are those of delivered messages."""
        return len(self._positions) - self._shown

    @property
    def _next_position(self) -> int | None:
        """The position of the next message to be delivered, as far as it is known."""
        delivered = self._delivered
        if delivered < len(self._positions):
            return self._positions[delivered]
        return None if self._replay is None else self._replay.end

    @property
    def last_delivered(self) -> int | None:
        """The position up to which everything was delivered; None before the first."""
        if self._discarded is not None:
            return self._discarded[0]
        following = self._next_position
        if following is None:
            return self._last
        return self._unless_before(following - 1)

    @property
    def finished(self) -> int | None:
        """The last finished position: before that of the last message, or list, delivered."""
        if self._discarded is not None:
            return self._discarded[1]
        last = self.last_delivered
        before_list, end_of_list = self._last_list
        if last is not None and last == end_of_list:
            return before_list
        delivered = self._delivered
        if not delivered:
            return last  # more was asked for since
        return self._unless_before(self._positions[delivered - 1] - 1)

    @property
    def progress(self) -> Progress:
        """The parts of a checkpoint beside the position."""
        if self._discarded is not None:
            return self._discarded[2]
        following = self._next_position
        positions = self._positions
        first = last = self._delivered
        while first and positions[first - 1] == following:
            first -= 1
        undelivered = [*self.ready, *decode_messages(self._undecoded[self._decoded :])]
        return Progress(last - first, self._visibility.before(undelivered))

    def _unless_before(self, position: int) -> int | None:
        return None if self._first is None or position < self._first else position

    @property
    def next_offset(self) -> int | None:
        """The position of the next message to deliver; None if none is buffered."""
        following = self._next_position
        return super().next_offset if following is None else following

    @property
    def buffered(self) -> int:
        """Number of messages that can be asked for; some may turn out not to be shown."""
        return self._shown if self._buffer.replaying else self._shown + len(self._buffer.waiting)

    def take_raw(self, most: int, stream: str, partition: int) -> NoReturn:
        """Refuse to take messages undecoded.

        Raises:
            UsageError: always.
        """
        del most
        raise UsageError(
            "a committed reading has decoded messages only; read them without raw=True",
            stream=stream,
            partition=partition,
        )

    def take_columns(self, most: int) -> NoReturn:
        """Refuse to take messages as columns.

        Raises:
            UsageError: always.
        """
        del most
        raise UsageError("a committed reading has no columns; read its messages, or batches")

    def discard(self) -> None:
        """Discard everything that is buffered."""
        if self._discarded is None:
            self._discarded = self.last_delivered, self.finished, self.progress
        super().discard()
        self._positions, self._undecoded, self._decoded = [], [], 0
        self._stop_replay()

    def _stop_replay(self) -> None:
        self._steps, self._replay, self._buffer.replaying = iter(()), None, False

    def replayed(self, shown: Shown) -> None:
        """Deliver what a replay shows, and go on behind it."""
        if self._replay is None:
            return  # what was buffered was discarded meanwhile
        self._replay, self._buffer.replaying = None, False
        self._positions += shown[0]
        self._undecoded += shown[1]
        self._go_on()
        self._buffer.bell.ring()

    def replay_failed(self, error: LiftbridgeError) -> None:
        """End with an error in the place of what a replay would show."""
        if self._replay is None:
            return
        end = self._replay.end
        self._last = end - 1
        self._stop_replay()
        self._buffer.cut(0)
        self._listener.failed(error, end)

    def _decode_next(self, most: int, *, ahead: bool = True) -> bool:
        buffer = self._buffer
        while True:
            if self._undecoded:
                self._decode_shown(most)
                return True
            if buffer.replaying or not buffer.waiting:
                return False
            batch = self._next_batch(most, ahead=ahead)
            if not batch.offsets:
                continue
            if self._first is None:
                self._first = batch.offsets[0]
            if batch.marks is None:
                self._positions = batch.offsets
                self._deliver(batch.messages())
                return True
            self._positions = []
            self._steps = self._judging(
                self._visibility.feed(batch.offsets, batch.data, batch.marks)
            )
            self._go_on()

    def _next_batch(self, most: int, *, ahead: bool) -> MarkedBatch:
        buffer = self._buffer
        judged = buffer.judged
        data = self._take_batch(min(most, _READ_AT_ONCE), ahead=ahead)
        batch, broken = read_marked(data)
        sifted = ALL_KEPT if judged else self._sift_places(batch.offsets, batch.timestamps)
        if sifted.kept is not None:
            batch = batch.select(sifted.kept)
        buffer.release(data)
        if batch.offsets:
            self._last = batch.offsets[-1]
        self._end(sifted, broken, keep=0, after=self._last)
        return batch

    def _decode_shown(self, most: int) -> None:
        """Decode some of what is shown: not all at once, so that few objects are alive."""
        start = self._decoded
        self._decoded = end = min(start + min(most, BATCH), len(self._undecoded))
        self._deliver(decode_messages(self._undecoded[start:end]))
        if end == len(self._undecoded):
            self._undecoded, self._decoded = [], 0

    def _deliver(self, messages: list[Message]) -> None:
        self._judged += len(messages)
        self.ready.extend(messages)

    def _judging(self, steps: Iterable[Shown | Replay]) -> Iterator[Shown | Replay]:
        """Yield steps up to a message that cannot be understood, and end there."""
        try:
            yield from steps
        except LiftbridgeError as error:
            self._buffer.cut(0)
            offset = error.offset
            self._last = None if offset is None else offset - 1
            self._listener.failed(error, offset)

    def _go_on(self) -> None:
        """Collect what messages show, up to where a part must be read again."""
        for step in self._steps:
            if not isinstance(step, tuple):
                self._replay, self._buffer.replaying = step, True
                self._start_replay(self, step)
                return
            self._positions += step[0]
            self._undecoded += step[1]
