"""Judges and decodes received messages, a batch ahead of the user."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Final, NamedTuple, Protocol, TypeVar

from liftbridge_aio.errors import LiftbridgeError, MalformedData, StreamReset, SubscriptionError
from liftbridge_aio.model import Message
from liftbridge_aio.wire.codec import decode_message, decode_messages, message_place
from liftbridge_aio.wire.column_batch import ColumnBatch, decode_columns
from liftbridge_aio.wire.raw_message import RawMessage

from .core.position import ENDING, Position, ReversePosition, Verdict
from .receive_buffer import ReceiveBuffer, held_by

logger = logging.getLogger("liftbridge_aio.subscription")

BATCH: Final = 128
"""Messages decoded ahead, at most: enough that the cost per batch does not matter."""
_BATCH_BYTES: Final = 2**18
"""Bytes decoded ahead, about: few enough that credit returns while messages are left to read."""
_DECODED_BYTES: Final = 600
"""Memory of a decoded message beside its bytes, about."""
_JUDGED_AT_ONCE: Final = 1000


T = TypeVar("T")


class Placed(Protocol):
    """Anything with a place in a log."""

    offset: int
    timestamp: int


class Progress(NamedTuple):
    """The parts of a checkpoint beside the position; see `Checkpoint`."""

    delivered: int
    producers: tuple[tuple[bytes, int], ...] | None


class DecoderListener(Protocol):
    """Is called when messages end the subscription, rather than the server."""

    def delivered(self) -> None:
        """Note that wanted messages were received."""

    def stopped(self) -> None:
        """End: the stop was reached."""

    def failed(self, error: LiftbridgeError, after: int | None) -> None:
        """End with an error behind the message at this offset."""


class Decoder:
    """Takes messages from a `ReceiveBuffer`.

    Each message is judged once, in order: when its batch is decoded, or, after a break, before the
    reader subscribes again, because the next offset depends on it. The listener learns of an end at
    once; the user gets it after all messages before it.

    Args:
        buffer: where it takes messages from, and returns credit to.
        listener: is called at a stop and on failures.
        account: called with the bytes that decoding has taken, or (negative) returned.
    """

    def __init__(
        self, buffer: ReceiveBuffer, listener: DecoderListener, account: Callable[[int], None]
    ) -> None:
        self.ready: deque[Message] = deque()
        """Decoded messages to be delivered, from the left."""
        self.position: Position | ReversePosition = Position()
        self.dropped = 0
        self._buffer = buffer
        self._listener = listener
        self._account = account
        self._batch: list[bytes] = []
        self._judged = 0
        self._last: int | None = None
        self._before_batch: int | None = None
        self._before_last: int | None = None
        self._last_list: tuple[int | None, int | None] = (None, None)

    @property
    def last_delivered(self) -> int | None:
        """The last offset that was delivered; None before the first."""
        used = len(self._batch) - len(self.ready)
        if used:
            return message_place(self._batch[used - 1])[0]
        return self._before_batch if self.ready else self._last

    @property
    def finished(self) -> int | None:
        """The last finished offset: of what was delivered before the last message or list.

        Computed here, so that delivering costs nothing more.
        """
        last = self.last_delivered
        before_list, end_of_list = self._last_list
        if last == end_of_list:
            return before_list
        used = len(self._batch) - len(self.ready)
        if used > 1:
            return message_place(self._batch[used - 2])[0]
        return self._before_batch if used else self._before_last

    @property
    def progress(self) -> Progress:
        """The parts of a checkpoint beside the position."""
        return Progress(0, None)

    @property
    def next_offset(self) -> int | None:
        """The offset of the next message to deliver; None if none is buffered."""
        if self.ready:
            return self.ready[0].offset
        waiting = self._buffer.waiting
        if not waiting:
            return None
        try:
            offset, timestamp = message_place(waiting[0])
        except MalformedData:
            return None  # raised when its turn comes
        wanted = bool(self._buffer.judged) or self.position.wants(offset, timestamp)
        return offset if wanted else None

    @property
    def delivered(self) -> int:
        """Number of delivered messages."""
        return self._judged - len(self.ready)

    @property
    def buffered(self) -> int:
        """Number of undelivered messages; some may turn out to be repeats."""
        return len(self.ready) + len(self._buffer.waiting)

    @property
    def buffered_bytes(self) -> int:
        """Approximate memory of undelivered messages, in bytes."""
        used = len(self._batch) - len(self.ready)
        return self._buffer.held_bytes - held_by(self._batch[:used])

    @property
    def last_offset(self) -> int | None:
        """The last offset that was received in order."""
        waiting, position = self._buffer.waiting, self.position
        if len(waiting) > self._buffer.judged:
            try:
                offset, timestamp = message_place(waiting[-1])
            except MalformedData:
                return position.last  # raised when its turn comes
            if position.wants(offset, timestamp):
                return offset
        return position.last

    # Reading

    def refill(self) -> bool:
        """Decode a batch if none is ready; return True if messages are ready."""
        return bool(self.ready) or self._decode_next(BATCH)

    def put_back(self, message: Message) -> None:
        """Hand out again what was handed out last, if nothing was asked for since."""
        self.ready.appendleft(message)

    def release_delivered(self) -> None:
        """Release a batch that was delivered whole; to be called before waiting for more."""
        if not self.ready:
            self._release()

    def take(self, most: int) -> list[Message]:
        """Take up to `most` messages."""
        ready, before = self.ready, self.last_delivered
        taken: list[Message] = []
        while True:
            missing = most - len(taken)
            if len(ready) <= missing:
                taken += ready
                ready.clear()
            else:
                taken += [ready.popleft() for _ in range(missing)]
            if len(taken) == most or not self._decode_next(most - len(taken), ahead=False):
                break
        self.release_delivered()
        if taken:
            self._last_list = (before, self.last_delivered)
        return taken

    def take_as(
        self,
        most: int,
        convert: Callable[[Message], T | None],
        delivered: Callable[[Message], None] | None = None,
        *,
        may_raise: bool = True,
    ) -> list[T]:
        """Take up to `most` messages and return the results of `convert`, without None.

        If `convert` raises, the list ends before that message; the next call takes that message
        alone, and raises the error.

        Args:
            most: messages, at most.
            convert: called for each message.
            delivered: called for each message that was taken.
            may_raise: False leaves a message that cannot be converted in place.

        Raises:
            Exception: what `convert` raises for the first message.
        """
        if not self.ready and not self._decode_next(most, ahead=False):
            return []
        ready, before = self.ready, self.last_delivered
        items: list[T] = []
        count = 0
        failure: Exception | None = None
        for message in islice(ready, most):
            try:
                item = convert(message)
            except Exception as error:  # noqa: BLE001 - raised once the message is taken
                if count == 0 and may_raise:
                    failure, count = error, 1
                break
            count += 1
            if item is not None:
                items.append(item)
        if count:
            taken = [ready.popleft() for _ in range(count)]
            self._last_list = (before, self.last_delivered)
            self.release_delivered()
            if delivered is not None:
                for message in taken:
                    delivered(message)
        if failure is not None:
            raise failure
        return items

    def take_raw(self, most: int, stream: str, partition: int) -> list[RawMessage]:
        """Take up to `most` messages, undecoded."""
        self._put_back_ready()
        buffer = self._buffer
        taken: list[RawMessage] = []
        before = self._last
        while buffer.waiting and len(taken) < most:
            judged = buffer.judged
            count = most - len(taken)
            data = buffer.take(min(count, judged) if judged else count)
            found, broken = _placed(data, stream, partition)
            sifted = self._sift(found, judged=bool(judged))
            wanted = found if sifted.kept is None else [found[index] for index in sifted.kept]
            self._count(wanted)
            buffer.release(data)
            self._end(sifted, broken, keep=0, after=self._last)
            taken += wanted
        if taken:
            self._last_list = (before, self._last)
        return taken

    def take_columns(self, most: int) -> ColumnBatch | None:
        """Take up to `most` messages as columns; None if none is wanted."""
        self._put_back_ready()
        buffer = self._buffer
        while buffer.waiting:
            judged = buffer.judged
            data = buffer.take(min(most, judged) if judged else most)
            found, broken = decode_columns(data)
            sifted = ALL_KEPT if judged else self._sift_places(found.offsets, found.timestamps)
            wanted = found if sifted.kept is None else found.select(sifted.kept)
            buffer.release(data)
            if wanted.offsets:
                self._judged += len(wanted)
                self._last_list = (self._last, wanted.offsets[-1])
                self._last = wanted.offsets[-1]
            self._end(sifted, broken, keep=0, after=self._last)
            if wanted.offsets:
                return wanted
        return None

    def judge_some(self) -> bool:
        """Judge some buffered messages without decoding them; return True if there are more."""
        buffer = self._buffer
        start = buffer.judged
        data = list(islice(buffer.waiting, start, start + _JUDGED_AT_ONCE))
        found, broken = _placed(data, "", 0)
        sifted = self._sift(found, judged=False)
        if sifted.kept is None:
            buffer.judged += len(found)
        else:
            buffer.keep(len(found), sifted.kept)
        self._end(sifted, broken, keep=buffer.judged, after=self.position.last)
        return len(buffer.waiting) > buffer.judged

    def discard(self) -> None:
        """Discard everything that is buffered."""
        last, finished = self.last_delivered, self.finished
        self._judged -= len(self.ready)
        self.ready.clear()
        self._release()
        self._last, self._before_last = last, finished
        self._buffer.cut(0)
        self._buffer.forget_error()

    def _decode_next(self, most: int, *, ahead: bool = True) -> bool:
        self._release()
        buffer = self._buffer
        while buffer.waiting:
            judged = buffer.judged
            data = self._batch = self._take_batch(most, ahead=ahead)
            self._account(_DECODED_BYTES * len(data))
            messages, broken = _decoded(data)
            sifted = self._sift(messages, judged=bool(judged))
            if sifted.kept is not None:
                messages = [messages[index] for index in sifted.kept]
                self._keep_of_batch(sifted.kept)
            elif broken is not None:
                self._keep_of_batch(range(len(messages)))
            self._before_batch = self._last
            self._count(messages)
            self.ready.extend(messages)
            self._end(sifted, broken, keep=0, after=self._last)
            if messages:
                return True
            self._release()
        return False

    def _count(self, messages: Sequence[Placed]) -> None:
        if messages:
            self._judged += len(messages)
            self._last = messages[-1].offset

    def _take_batch(self, most: int, *, ahead: bool) -> list[bytes]:
        """Take the next messages, of which all are judged or none is."""
        buffer = self._buffer
        count = min(most, buffer.judged) if buffer.judged else most
        return buffer.take(min(count, self._batch_size()) if ahead else count)

    def _batch_size(self) -> int:
        """Return how many messages to decode ahead: a part of what may be held."""
        buffer = self._buffer
        most = min(_BATCH_BYTES, buffer.capacity() >> 2)
        return max(most // (buffer.average_bytes + _DECODED_BYTES), 1)

    def _release(self) -> None:
        """Release a batch that was delivered whole."""
        batch, self._batch = self._batch, []
        if batch:
            several = len(batch) > 1
            self._before_last = message_place(batch[-2])[0] if several else self._before_batch
        self._release_data(batch)

    def _release_data(self, data: list[bytes]) -> None:
        if data:
            self._account(-_DECODED_BYTES * len(data))
            self._buffer.release(data)

    def _keep_of_batch(self, kept: Sequence[int]) -> None:
        data, chosen = self._batch, frozenset(kept)
        self._batch = [data[index] for index in kept]
        self._release_data([each for index, each in enumerate(data) if index not in chosen])

    def _put_back_ready(self) -> None:
        """Return decoded messages to the buffer, undecoded."""
        self._last = self.last_delivered
        count = len(self.ready)
        used = len(self._batch) - count
        unread = self._batch[used:]
        del self._batch[used:]
        self._release()
        if unread:
            self.ready.clear()
            self._judged -= count
            self._account(-_DECODED_BYTES * count)
            self._buffer.put_back(unread)

    # Judging

    def _sift(self, messages: Sequence[Placed], *, judged: bool) -> _Sifted:
        if judged or not messages:
            return ALL_KEPT
        return self._sift_places(
            [message.offset for message in messages], [message.timestamp for message in messages]
        )

    def _sift_places(self, offsets: list[int], timestamps: list[int]) -> _Sifted:
        if not offsets:
            return ALL_KEPT
        verdicts = self.position.judge_all(offsets, timestamps)
        if verdicts is None:
            self._listener.delivered()
            return ALL_KEPT
        kept = [index for index, verdict in enumerate(verdicts) if verdict in _WANTED]
        if kept:
            self._listener.delivered()
        self.dropped += verdicts.count(Verdict.DROP)
        last = verdicts[-1]
        if last is Verdict.RESET:
            text = "an offset that was delivered before has another message now"
            reset = StreamReset(text, offset=offsets[len(verdicts) - 1])
            return _Sifted(kept, reset)
        return _Sifted(kept, stopped=last in ENDING)

    def _end(
        self, sifted: _Sifted, broken: LiftbridgeError | None, *, keep: int, after: int | None
    ) -> None:
        """Call the listener if this was the end; keep the first `keep` buffered messages."""
        error = sifted.error or broken
        if sifted.stopped:
            self._buffer.cut(keep)
            self._listener.stopped()
        elif error is not None:
            self._buffer.cut(keep)
            self._listener.failed(error, after)


class _Sifted(NamedTuple):
    """The outcome of judging messages."""

    kept: list[int] | None
    """Indexes of the wanted messages; None: all are wanted."""
    error: LiftbridgeError | None = None
    stopped: bool = False


ALL_KEPT: Final = _Sifted(None)
_WANTED: Final = frozenset({Verdict.DELIVER, Verdict.DELIVER_LAST})


def _decoded(data: list[bytes]) -> tuple[list[Message], LiftbridgeError | None]:
    """Decode messages, up to the first that is malformed."""
    try:
        return decode_messages(data), None
    except Exception:  # noqa: BLE001 - raised again below, with its message
        return _until_broken(data, decode_message)


def _placed(
    data: list[bytes], stream: str, partition: int
) -> tuple[list[RawMessage], LiftbridgeError | None]:
    """Return offsets and timestamps of messages, up to the first that is malformed."""

    def placed(each: bytes) -> RawMessage:
        offset, timestamp = message_place(each)
        return RawMessage(stream, partition, offset, timestamp, each)

    return _until_broken(data, placed)


def _until_broken(
    data: list[bytes], read: Callable[[bytes], T]
) -> tuple[list[T], LiftbridgeError | None]:
    found: list[T] = []
    try:
        for each in data:
            found.append(read(each))  # noqa: PERF401 - what was read before a broken one counts
    except MalformedData as error:
        return found, error
    except Exception as error:
        logger.exception("a message could not be decoded")
        return found, bug(error)
    return found, None


def bug(error: Exception) -> SubscriptionError:
    """Return the error that ends a subscription because of a bug in the client."""
    fault = SubscriptionError(f"the subscription failed because of a bug in the client: {error!r}")
    fault.__cause__ = error
    return fault
