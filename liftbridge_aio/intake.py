"""What came from the server, judged and decoded a batch ahead of the user."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Final, NamedTuple, Protocol, TypeVar

from .errors import LiftbridgeError, MalformedData, StreamReset, SubscriptionError
from .feed import Feed, held_by
from .model import Message
from .position import ENDING, Position, ReversePosition, Verdict
from .raw_message import RawMessage
from .wire.codec import decode_message, decode_messages, message_place
from .wire.column_batch import ColumnBatch, decode_columns

logger = logging.getLogger("liftbridge_aio.subscription")

_BATCH: Final = 128
"""Messages that are decoded ahead, at most: enough that what a batch costs once does not count."""
_BATCH_BYTES: Final = 2**18
"""Bytes of them, about: so that credit goes back while there is something left to read."""
_DECODED_BYTES: Final = 600
"""What a decoded message costs beside its bytes, about."""
_JUDGED_AT_ONCE: Final = 1000


class Placed(Protocol):
    """Anything with a place in a log."""

    offset: int
    timestamp: int


class Ends(Protocol):
    """Is told where the reading ends by what came, and not by the server."""

    def delivered(self) -> None:
        """Take note that messages came that are wanted."""

    def stopped(self) -> None:
        """Take note that the stop was reached."""

    def failed(self, error: LiftbridgeError, after: int | None) -> None:
        """Take note that nothing more can be taken in after the message at this offset."""


class Intake:
    """Takes messages from a feed.

    Each message is judged once, in order: with the batch in which it is read, or, where a break
    comes first, before the reading goes on, because where it goes on depends on it. What ends the
    reading is told at once, and takes effect for the user after all that stands before it.

    Args:
        feed: where it takes from, and gives credit back to.
        ends: is told of a stop and of failures.
        account: told how many bytes decoding has taken, or given back.
    """

    def __init__(self, feed: Feed, ends: Ends, account: Callable[[int], None]) -> None:
        self.ready: deque[Message] = deque()
        """Messages that may be handed out; whoever does so takes them from the left."""
        self.position: Position | ReversePosition = Position()
        self.dropped = 0
        self._feed = feed
        self._ends = ends
        self._account = account
        self._batch: list[bytes] = []
        self._taken = 0
        self._last: int | None = None
        self._before_batch: int | None = None
        self._before_last: int | None = None
        self._list: tuple[int | None, int | None] = (None, None)

    @property
    def handed_over(self) -> int | None:
        """The last offset that was handed out; None before the first."""
        used = len(self._batch) - len(self.ready)
        if used:
            return message_place(self._batch[used - 1])[0]
        return self._before_batch if self.ready else self._last

    @property
    def finished(self) -> int | None:
        """The last offset that was handed out before what the reader has in hand.

        In hand is the last message, or the list of messages with which it came. Found when asked
        for, so that handing out costs nothing more.
        """
        last = self.handed_over
        before_list, end_of_list = self._list
        if last == end_of_list:
            return before_list
        used = len(self._batch) - len(self.ready)
        if used > 1:
            return message_place(self._batch[used - 2])[0]
        return self._before_batch if used else self._before_last

    @property
    def next_offset(self) -> int | None:
        """The offset of the next message to hand out; None where none is known to be here."""
        if self.ready:
            return self.ready[0].offset
        waiting = self._feed.waiting
        if not waiting:
            return None
        try:
            offset, timestamp = message_place(waiting[0])
        except MalformedData:
            return None  # told when its turn comes
        wanted = bool(self._feed.judged) or self.position.wants(offset, timestamp)
        return offset if wanted else None

    @property
    def delivered(self) -> int:
        """Messages handed out."""
        return self._taken - len(self.ready)

    @property
    def buffered(self) -> int:
        """Messages that wait, some of which may turn out to be repeats."""
        return len(self.ready) + len(self._feed.waiting)

    @property
    def buffered_bytes(self) -> int:
        """Bytes of what waits, with what it costs beside them in this process, about."""
        used = len(self._batch) - len(self.ready)
        return self._feed.held_bytes - held_by(self._batch[:used])

    @property
    def last_offset(self) -> int | None:
        """The last offset in order that came."""
        waiting, position = self._feed.waiting, self.position
        if len(waiting) > self._feed.judged:
            try:
                offset, timestamp = message_place(waiting[-1])
            except MalformedData:
                return position.last  # told when its turn comes
            if position.wants(offset, timestamp):
                return offset
        return position.last

    # Reading

    def refill(self) -> bool:
        """Have messages ready, if some wait; tell whether there are."""
        return bool(self.ready) or self._decode_next(_BATCH)

    def give_back(self) -> None:
        """Give back the room of what was handed out; to be called before waiting for more."""
        if not self.ready:
            self._release()

    def take(self, most: int) -> list[Message]:
        """Take up to `most` of the messages that wait."""
        ready, before = self.ready, self.handed_over
        taken = [ready.popleft() for _ in range(min(most, len(ready)))]
        while len(taken) < most and self._decode_next(most - len(taken), ahead=False):
            taken += ready
            ready.clear()
        self.give_back()
        if taken:
            self._list = (before, taken[-1].offset)
        return taken

    def take_raw(self, most: int, stream: str, partition: int) -> list[RawMessage]:
        """Take up to `most` of the messages that wait, undecoded."""
        self._undo()
        feed = self._feed
        while feed.waiting:
            judged = feed.judged
            data = feed.take(min(most, judged) if judged else most)
            found, broken = _placed(data, stream, partition)
            sifted = self._sift(found, judged=bool(judged))
            wanted = found if sifted.kept is None else [found[index] for index in sifted.kept]
            before = self._last
            self._count(wanted)
            feed.used_up(data)
            self._end(sifted, broken, keep=0, after=self._last)
            if wanted:
                self._list = (before, self._last)
                return wanted
        return []

    def take_columns(self, most: int) -> ColumnBatch | None:
        """Take up to `most` of the messages that wait, as columns; None where none is wanted."""
        self._undo()
        feed = self._feed
        while feed.waiting:
            judged = feed.judged
            data = feed.take(min(most, judged) if judged else most)
            found, broken = decode_columns(data)
            sifted = _ALL if judged else self._sift_places(found.offsets, found.timestamps)
            wanted = found if sifted.kept is None else found.select(sifted.kept)
            feed.used_up(data)
            if wanted.offsets:
                self._taken += len(wanted)
                self._list = (self._last, wanted.offsets[-1])
                self._last = wanted.offsets[-1]
            self._end(sifted, broken, keep=0, after=self._last)
            if wanted.offsets:
                return wanted
        return None

    def judge_some(self) -> bool:
        """Judge some of what waits without decoding it; tell whether there is more of it."""
        feed = self._feed
        start = feed.judged
        data = list(islice(feed.waiting, start, start + _JUDGED_AT_ONCE))
        found, broken = _placed(data, "", 0)
        sifted = self._sift(found, judged=False)
        if sifted.kept is None:
            feed.judged += len(found)
        else:
            feed.keep(len(found), sifted.kept)
        self._end(sifted, broken, keep=feed.judged, after=self.position.last)
        return len(feed.waiting) > feed.judged

    def discard(self) -> None:
        """Forget everything that waits."""
        last, finished = self.handed_over, self.finished
        self._taken -= len(self.ready)
        self.ready.clear()
        self._release()
        self._last, self._before_last = last, finished
        self._feed.cut(0)
        self._feed.forget_error()

    def _decode_next(self, most: int, *, ahead: bool = True) -> bool:
        self._release()
        feed = self._feed
        while feed.waiting:
            judged = feed.judged
            count = min(most, judged) if judged else most
            data = feed.take(min(count, self._room()) if ahead else count)
            self._batch = data
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
            self._taken += len(messages)
            self._last = messages[-1].offset

    def _room(self) -> int:
        """How many messages to decode ahead: a part of what may be held, and no more."""
        feed = self._feed
        most = min(_BATCH_BYTES, feed.capacity() >> 2)
        return max(most // (feed.average_bytes + _DECODED_BYTES), 1)

    def _release(self) -> None:
        """Give back what the batch took, once all of it was handed out."""
        batch, self._batch = self._batch, []
        if batch:
            several = len(batch) > 1
            self._before_last = message_place(batch[-2])[0] if several else self._before_batch
        self._let_go(batch)

    def _let_go(self, data: list[bytes]) -> None:
        if data:
            self._account(-_DECODED_BYTES * len(data))
            self._feed.used_up(data)

    def _keep_of_batch(self, kept: Sequence[int]) -> None:
        data, chosen = self._batch, frozenset(kept)
        self._batch = [data[index] for index in kept]
        self._let_go([each for index, each in enumerate(data) if index not in chosen])

    def _undo(self) -> None:
        """Put what is ready back to what waits, as it came."""
        self._last = self.handed_over
        count = len(self.ready)
        used = len(self._batch) - count
        unread = self._batch[used:]
        del self._batch[used:]
        self._release()
        if unread:
            self.ready.clear()
            self._taken -= count
            self._account(-_DECODED_BYTES * count)
            self._feed.take_back(unread)

    # Judging

    def _sift(self, messages: Sequence[Placed], *, judged: bool) -> _Sifted:
        if judged or not messages:
            return _ALL
        return self._sift_places(
            [message.offset for message in messages], [message.timestamp for message in messages]
        )

    def _sift_places(self, offsets: list[int], timestamps: list[int]) -> _Sifted:
        if not offsets:
            return _ALL
        verdicts = self.position.judge_all(offsets, timestamps)
        if verdicts is None:
            self._ends.delivered()
            return _ALL
        kept = [index for index, verdict in enumerate(verdicts) if verdict in _WANTED]
        if kept:
            self._ends.delivered()
        self.dropped += verdicts.count(Verdict.DROP)
        last = verdicts[-1]
        if last is Verdict.RESET:
            text = "another message stands at an offset that was delivered before"
            reset = StreamReset(text, offset=offsets[len(verdicts) - 1])
            return _Sifted(kept, reset)
        return _Sifted(kept, stopped=last in ENDING)

    def _end(
        self, sifted: _Sifted, broken: LiftbridgeError | None, *, keep: int, after: int | None
    ) -> None:
        """End the reading where that is due; of what waits, the first `keep` stay."""
        error = sifted.error or broken
        if sifted.stopped:
            self._feed.cut(keep)
            self._ends.stopped()
        elif error is not None:
            self._feed.cut(keep)
            self._ends.failed(error, after)


class _Sifted(NamedTuple):
    """What judging messages came to."""

    kept: list[int] | None
    """The places of those that are wanted; None: all are."""
    error: LiftbridgeError | None = None
    stopped: bool = False


_ALL: Final = _Sifted(None)
_WANTED: Final = frozenset({Verdict.DELIVER, Verdict.DELIVER_LAST})

T = TypeVar("T")


def _decoded(data: list[bytes]) -> tuple[list[Message], LiftbridgeError | None]:
    """Decode messages, up to the first that cannot be."""
    try:
        return decode_messages(data), None
    except Exception:  # noqa: BLE001 - comes again below, with the message that it comes from
        return _until_broken(data, decode_message)


def _placed(
    data: list[bytes], stream: str, partition: int
) -> tuple[list[RawMessage], LiftbridgeError | None]:
    """Find the places of messages, up to the first that has none."""

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
        logger.exception("a message could not be taken in")
        fault = SubscriptionError(f"the reading failed by a fault of the client: {error!r}")
        fault.__cause__ = error
        return found, fault
    return found, None
