"""One stream on the data lane: its bytes are cut into gRPC messages, its credit is kept (pure)."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from struct import Struct
from typing import Final

from liftbridge_aio.wire.framing import PREFIX_BYTES

from .lane_credit import LaneCredit

_PREFIX: Final = Struct(">BI")
"""What stands before each message: whether it is compressed, and its length."""


class LaneFault(enum.Enum):
    """Why nothing more is taken from a stream."""

    COMPRESSED = "compressed"
    TOO_LONG = "too long"


@dataclass(frozen=True, slots=True)
class LaneFailure:
    """What was wrong with a message, in words too."""

    fault: LaneFault
    text: str


class LanePhase(enum.Enum):
    """Whose the DATA frames of a stream are."""

    AWAITED = "awaited"
    """h2's: there can be none before the peer's HEADERS."""
    OPEN = "open"
    """The lane's."""
    DROPPED = "dropped"
    """Nobody's: the stream was given up in the middle, and what is on its way is thrown away."""
    ENDED = "ended"
    """h2's: there can be none after the peer has ended or reset the stream."""


class LaneStream:
    """A stream whose messages the lane takes; made by `DataLane.open`."""

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
        """Whole messages that nobody has taken yet; whoever takes them puts an empty list here."""
        self.failure: LaneFailure | None = None
        """Why nothing more is taken; what came before stands in `messages`."""
        self.credit = LaneCredit(window)
        self.phase = LanePhase.AWAITED
        """For the lane."""
        self.round = 0
        """For the lane: when it last noted that the stream was touched."""
        self._max_message_bytes = max_message_bytes
        self._partial = bytearray()
        self._missing = 0
        self._due = due
        self._queued = False

    def __repr__(self) -> str:
        """Show which stream it is, and whose its frames are."""
        return f"<LaneStream {self.stream_id} {self.phase.value}>"

    @property
    def incomplete(self) -> bool:
        """Whether a message has begun and not ended."""
        return bool(self._partial)

    def drained(self, size: int) -> None:
        """Note that the user has taken messages: their room is the peer's again.

        Args:
            size: their bytes as flow control counts them: the lengths, and 5 for each.

        Raises:
            ValueError: there was not so much to be taken.
        """
        credit = self.credit
        if not 0 <= size <= credit.received - credit.drained - len(self._partial):
            text = f"{size} bytes were not there to be drained"
            raise ValueError(text)
        credit.drained += size
        if self._missing or credit.drained - credit.granted >= credit.bulk:
            self._note_due()

    def set_window(self, new: int) -> None:
        """Follow a change of our own SETTINGS_INITIAL_WINDOW_SIZE; to be called as it is sent.

        Args:
            new: bytes.
        """
        self.credit.set_window(new)
        self._note_due()

    def window_acknowledged(self, size: int) -> None:
        """Follow the peer's acknowledgement of such a change.

        Until then, so for ever if this is never called, what comes is judged by the widest window.

        Args:
            size: the window that was acknowledged, in bytes.
        """
        self.credit.window_acknowledged(size)

    # For the lane

    def may_take_whole(self, frame_bytes: int) -> bool:
        """Whether frames up to this size that hold one whole message need no further look."""
        # What was refused lies there as the beginning of a message.
        return not self._partial and self._max_message_bytes >= frame_bytes

    def drop(self) -> None:
        """Forget what is here, and take nothing more."""
        self.phase = LanePhase.DROPPED
        self.messages = []
        self._partial = bytearray()

    def take(self, data: bytes, start: int, end: int, padding: int) -> None:
        """Take the payload of a frame.

        Args:
            data: where it stands.
            start: where it begins.
            end: where it ends.
            padding: bytes that came with it and mean nothing.
        """
        self.credit.received += end - start + padding
        self.credit.drained += padding
        while start < end and self.failure is None:
            start = self._take_next(data, start, end)
        self._note_due()

    def _take_next(self, data: bytes, start: int, end: int) -> int:
        """Go on with the message in progress, or with the next; return how far it went."""
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
            self.failure = self._refuse(flag, self._missing)
        return stop

    def _refuse(self, flag: int, length: int) -> LaneFailure | None:
        if flag:
            text = "the server sent a compressed message, which was not agreed upon"
            return LaneFailure(LaneFault.COMPRESSED, text)
        if length > self._max_message_bytes:
            text = f"a message of {length} bytes exceeds max_receive_bytes"
            return LaneFailure(LaneFault.TOO_LONG, text)
        return None

    def _note_due(self) -> None:
        if not self._queued and self._credit_due():
            self._queued = True
            self._due.append(self)

    def _credit_due(self) -> int:
        # Nothing more can come on streams that have ended, and nothing is wanted of the others.
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
