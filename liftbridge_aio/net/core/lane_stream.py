"""One stream of the data lane: cuts its bytes into gRPC messages, keeps its flow control. Pure."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from struct import Struct
from typing import Final

from liftbridge_aio.wire.framing import PREFIX_BYTES

_PREFIX: Final = Struct(">BI")
"""The prefix of each message: the compression flag and the length."""


_WIDEST: Final = 2**31 - 1
"""No window may be wider (RFC 9113, section 6.9.1)."""


class MessageFault(enum.Enum):
    """The reason why a stream is not read any further."""

    COMPRESSED = "compressed"
    TOO_LONG = "too long"


@dataclass(frozen=True, slots=True)
class InvalidMessage:
    """An invalid message: the kind of fault, and a text for errors."""

    fault: MessageFault
    text: str


def invalid_message(flag: int, length: int, max_bytes: int) -> InvalidMessage | None:
    """Return what is invalid about a message with this prefix; None if it is valid.

    Args:
        flag: 1 if it is compressed.
        length: its length in bytes.
        max_bytes: the longest that is accepted.
    """
    if flag:
        text = "the server sent a compressed message, which was not negotiated"
        return InvalidMessage(MessageFault.COMPRESSED, text)
    if length > max_bytes:
        text = f"a message of {length} bytes exceeds max_receive_bytes={max_bytes}"
        return InvalidMessage(MessageFault.TOO_LONG, text)
    return None


class LanePhase(enum.Enum):
    """Handler of the DATA frames of a stream."""

    AWAITED = "awaited"
    """h2: DATA before the peer's HEADERS is an error."""
    OPEN = "open"
    """The lane."""
    DROPPED = "dropped"
    """The lane, which discards them: the stream was reset by us while data was on its way."""
    ENDED = "ended"
    """h2: DATA after the peer has ended or reset the stream is an error."""


class LaneCredit:
    """Flow control of one stream, by the rules of RFC 9113, sections 5.2 and 6.9.

    Credit is given back for consumed bytes, in bulk: when a quarter of the window is due, or when
    the message in progress needs it. A message that does not fit in the window gets an advance of
    at most its own size; what is consumed later pays it back before credit is given again. So at
    most the widest window and one message are ever unconsumed, however windows change.
    """

    __slots__ = ("_acknowledged", "_limit", "_pending", "bulk", "consumed", "granted", "received")

    def __init__(self, window: int) -> None:
        self.received = 0
        """Bytes received."""
        self.consumed = 0
        """Bytes of those that the user has consumed."""
        self.granted = 0
        """Bytes of credit written to the peer."""
        self.bulk = max(window >> 2, 1)
        """Bytes of credit that are worth a WINDOW_UPDATE frame."""
        self._acknowledged = window
        self._pending: list[int] = []
        self._limit = window

    @property
    def window(self) -> int:
        """The stream's window once the peer has applied our settings."""
        return self._pending[-1] if self._pending else self._acknowledged

    @property
    def allowance(self) -> int:
        """Bytes that the peer may send with our settings applied; negative after a shrink."""
        return self.window + self.granted - self.received

    @property
    def exceeded(self) -> bool:
        """True if the peer has sent more than any window allowed that it may still have applied."""
        return self.received - self.granted > self._limit

    def set_window(self, window: int) -> None:
        """Apply a change of our settings; the peer adjusts by the difference (section 6.9.2)."""
        if window != self.window:
            self._pending.append(window)
            self._limit = max(self._limit, window)
            self.bulk = max(window >> 2, 1)

    def window_acknowledged(self, window: int) -> None:
        """Hold the peer to this window from now on, or to newer ones that are on their way."""
        if self._pending and self._pending[0] == window:
            self._acknowledged = self._pending.pop(0)
            self._limit = max(self._acknowledged, *self._pending, 0)

    def due(self, begun: int, missing: int) -> int:
        """Return the credit to write now, in bytes.

        Args:
            begun: bytes received of the message in progress.
            missing: bytes that it lacks; 0 between messages.
        """
        owed = self.consumed - self.granted
        if missing:
            shortage = missing - self.allowance
            if 0 < shortage <= owed + begun + missing:
                return min(max(owed, shortage), self._most)
        return owed if owed >= self.bulk else 0

    @property
    def _most(self) -> int:
        """The credit that keeps every window that the peer may still apply within its limit."""
        return max(_WIDEST - self._limit - self.granted + self.received, 0)


class LaneStream:
    """A stream whose messages the lane extracts; made by `DataLane.open`."""

    __slots__ = (
        "_due",
        "_max_message_bytes",
        "_missing",
        "_partial",
        "_queued",
        "credit",
        "failure",
        "messages",
        "phase",
        "round",
        "stream_id",
    )

    def __init__(
        self, stream_id: int, *, window: int, max_message_bytes: int, due: list[LaneStream]
    ) -> None:
        self.stream_id = stream_id
        self.messages: list[bytes] = []
        """Whole messages that were not taken yet; the taker replaces the list by an empty one."""
        self.failure: InvalidMessage | None = None
        """The reason why the stream is not read any further; earlier messages are in `messages`."""
        self.credit = LaneCredit(window)
        self.phase = LanePhase.AWAITED
        """Changed by the lane."""
        self.round = 0
        """Changed by the lane: the round in which it last listed the stream as touched."""
        self._max_message_bytes = max_message_bytes
        self._partial = bytearray()
        self._missing = 0
        self._due = due
        self._queued = False

    def __repr__(self) -> str:
        """Show the stream's id and phase."""
        return f"<LaneStream {self.stream_id} {self.phase.value}>"

    @property
    def incomplete(self) -> bool:
        """True if a message has begun and not ended."""
        return bool(self._partial)

    def consumed(self, size: int) -> None:
        """Give credit to the peer for messages that the user has consumed.

        Args:
            size: their bytes as flow control counts them: the lengths, and 5 for each.

        Raises:
            ValueError: fewer bytes than that were unconsumed.
        """
        credit = self.credit
        if not 0 <= size <= credit.received - credit.consumed - len(self._partial):
            raise ValueError(f"{size} bytes were not there to be consumed")
        credit.consumed += size
        if self._missing or credit.consumed - credit.granted >= credit.bulk:
            self._note_due()

    def set_window(self, new: int) -> None:
        """Apply a change of our SETTINGS_INITIAL_WINDOW_SIZE; to be called when it is sent.

        Args:
            new: the window in bytes.
        """
        self.credit.set_window(new)
        self._note_due()

    def window_acknowledged(self, size: int) -> None:
        """Apply the peer's acknowledgement of such a change.

        Until this is called, the peer is held to the widest window.

        Args:
            size: the window that was acknowledged, in bytes.
        """
        self.credit.window_acknowledged(size)

    # Called by the lane

    def may_take_whole(self, frame_bytes: int) -> bool:
        """Return True if frames up to this size with one whole message need no further checks."""
        # A refused message is kept in _partial, as the beginning of one.
        return not self._partial and self._max_message_bytes >= frame_bytes

    def drop(self) -> None:
        """Discard what was received and what comes from now on."""
        self.phase = LanePhase.DROPPED
        self.messages = []
        self._partial = bytearray()

    def take(self, data: bytes, start: int, end: int, padding: int) -> None:
        """Take the payload of a frame.

        Args:
            data: the bytes that contain it.
            start: its first position.
            end: the position behind it.
            padding: bytes of padding that came with it.
        """
        self.credit.received += end - start + padding
        self.credit.consumed += padding
        while start < end and self.failure is None:
            start = self._take_next(data, start, end)
        self._note_due()

    def _take_next(self, data: bytes, start: int, end: int) -> int:
        """Continue the message in progress, or the next; return the position behind it."""
        partial = self._partial
        if not partial and end - start >= PREFIX_BYTES:
            flag, length = _PREFIX.unpack_from(data, start)
            stop: int = start + PREFIX_BYTES + length
            if stop <= end and not flag and length <= self._max_message_bytes:
                self.messages.append(data[start + PREFIX_BYTES : stop])
                return stop
        if len(partial) < PREFIX_BYTES:
            start = self._take_prefix(data, start, end)
            if self.failure is not None or len(partial) < PREFIX_BYTES:
                return start
        stop = min(start + self._missing, end)
        partial += memoryview(data)[start:stop]
        self._missing -= stop - start
        if not self._missing:
            self.messages.append(bytes(memoryview(partial)[PREFIX_BYTES:]))
            self._partial = bytearray()
        return stop

    def _take_prefix(self, data: bytes, start: int, end: int) -> int:
        partial = self._partial
        stop = min(start + PREFIX_BYTES - len(partial), end)
        partial += data[start:stop]
        self._missing = PREFIX_BYTES - len(partial)
        if not self._missing:
            flag, self._missing = _PREFIX.unpack(partial)
            self.failure = invalid_message(flag, self._missing, self._max_message_bytes)
        return stop

    def _note_due(self) -> None:
        if not self._queued and self._credit_due():
            self._queued = True
            self._due.append(self)

    def _credit_due(self) -> int:
        # Ended streams need no credit; of the others nothing more is wanted.
        if self.phase in _WITHOUT_CREDIT or self.failure is not None:
            return 0
        return self.credit.due(len(self._partial), self._missing)

    def take_credit(self) -> int:
        """Return the credit that is due, and count it as written."""
        self._queued = False
        due = self._credit_due()
        self.credit.granted += due
        return due


_WITHOUT_CREDIT: Final = (LanePhase.DROPPED, LanePhase.ENDED)
