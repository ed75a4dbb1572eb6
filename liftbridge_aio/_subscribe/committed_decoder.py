"""Shows what is committed of the messages that a `Decoder` decodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NoReturn

from liftbridge_aio.errors import LiftbridgeError, UsageError
from liftbridge_aio.model import Message
from liftbridge_aio.wire.codec import decode_marked, marks_of
from liftbridge_aio.wire.columns import Mark

from .core.visibility import Replay, Shown, ShownRun, Visibility
from .decoder import Decoder, DecoderListener, Progress
from .receive_buffer import ReceiveBuffer


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
        """Of the messages in `ready`, and of those that were delivered from it since it was
        empty."""
        self._marks: list[Mark] | None = None
        """Of the messages of the batch that was decoded last; None if none has one."""
        self._marks_known = False
        self._steps: Iterator[ShownRun | Replay] = iter(())
        """What decoded messages show that are not looked at yet."""
        self._replay: Replay | None = None
        """What is being read again."""
        self._first: int | None = None
        self._discarded: tuple[int | None, int | None, Progress] | None = None
        """What was delivered and what was finished when the rest was discarded, and `progress`."""

    @property
    def _next_position(self) -> int | None:
        """The position of the next message to be delivered, as far as it is known."""
        if self.ready:
            return self._positions[len(self._positions) - len(self.ready)]
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
        delivered = len(self._positions) - len(self.ready)
        if not delivered:
            return last  # more was asked for since
        return self._unless_before(self._positions[delivered - 1] - 1)

    @property
    def progress(self) -> Progress:
        """What a checkpoint has beside the position."""
        if self._discarded is not None:
            return self._discarded[2]
        following = self._next_position
        positions = self._positions
        first = last = len(positions) - len(self.ready)
        while first and positions[first - 1] == following:
            first -= 1
        return Progress(last - first, self._visibility.before(self.ready))

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
        return len(self.ready) if self._buffer.replaying else super().buffered

    def take_raw(self, most: int, stream: str, partition: int) -> NoReturn:
        """Refuse to take messages undecoded.

        Raises:
            UsageError: always.
        """
        del most
        text = "a committed reading has decoded messages only; read them without raw=True"
        raise UsageError(text, stream=stream, partition=partition)

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
        self._positions = []
        self._stop_replay()

    def _stop_replay(self) -> None:
        self._steps, self._replay, self._buffer.replaying = iter(()), None, False

    def replayed(self, shown: Sequence[Shown]) -> None:
        """Deliver what a replay shows, and go on behind it."""
        if self._replay is None:
            return  # what was buffered was discarded meanwhile
        self._replay, self._buffer.replaying = None, False
        self._positions += [position for position, _ in shown]
        self.ready.extend(message for _, message in shown)
        self._judged += len(shown)
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

    def _decode(self, data: list[bytes]) -> tuple[list[Message], LiftbridgeError | None]:
        self._marks_known = False
        return super()._decode(data)

    def _decode_all(self, data: list[bytes]) -> list[Message]:
        messages, self._marks = decode_marked(data)
        self._marks_known = True
        return messages

    def _keep_of_batch(self, kept: Sequence[int]) -> None:
        self._marks_known = False
        super()._keep_of_batch(kept)

    def _decode_next(self, most: int, *, ahead: bool = True) -> bool:
        buffer = self._buffer
        while not buffer.replaying and super()._decode_next(most, ahead=ahead):
            ready, data = self.ready, self._batch
            if self._first is None:
                self._first = ready[0].offset
            marks = self._marks if self._marks_known else marks_of(ready, data)
            if marks is None:
                self._positions = [message.offset for message in ready]
            else:
                messages = list(ready)
                self._judged -= len(messages)
                ready.clear()
                self._positions = []
                sizes = list(map(len, data))
                self._steps = self._judging(self._visibility.feed(messages, marks, sizes))
                self._go_on()
            self._release()
            if ready:
                return True
        return False

    def _judging(self, steps: Iterable[ShownRun | Replay]) -> Iterator[ShownRun | Replay]:
        """Yield steps up to a message that cannot be understood, and end there."""
        try:
            yield from steps
        except LiftbridgeError as error:
            self._buffer.cut(0)
            offset = error.offset
            self._last = None if offset is None else offset - 1
            self._listener.failed(error, offset)

    def _go_on(self) -> None:
        """Deliver what decoded messages show, up to where a part must be read again."""
        replay: Replay | None = None
        positions, ready = self._positions, self.ready
        before = len(ready)
        for step in self._steps:
            if not isinstance(step, tuple):
                replay = step
                break
            positions += step[0]
            ready.extend(step[1])
        self._judged += len(ready) - before
        self._replay = replay
        if replay is not None:
            self._buffer.replaying = True
            self._start_replay(self, replay)
