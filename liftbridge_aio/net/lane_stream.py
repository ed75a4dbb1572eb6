"""One stream on the data lane: its bytes are cut into gRPC messages, its credit is kept (pure)."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from struct import Struct
from typing import Final

from .lane_credit import LaneCredit

_PREFIX: Final = Struct(">BI")
_PREFIX_BYTES: Final = 5
_MOST_BYTES_IN_A_FRAME: Final = 2**14


class LaneFault(enum.Enum):
    """Why nothing more is taken from a stream."""

    COMPRESSED = "compressed"
    TOO_LONG = "too long"


@dataclass(frozen=True, slots=True)
class LaneFailure:
    """What was wrong with a message, in words too."""

    fault: LaneFault
    text: str


class LaneStream:
    """A stream whose messages the lane takes; made by `DataLane.open`."""

    __slots__ = (
        "_due",
        "_ended",
        "_max_message_bytes",
        "_partial",
        "_queued",
        "credit",
        "failure",
        "messages",
        "missing",
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
        """Why nothing more is taken; what came before it is among the messages."""
        self.credit = LaneCredit(window)
        self.missing = 0
        """Bytes that the message in progress is known to lack; 0 between messages."""
        self.round = 0
        """For the lane: when the stream was last noted as touched."""
        self._max_message_bytes = max_message_bytes
        self._partial = bytearray()
        self._due = due
        self._queued = False
        self._ended = False

    def __repr__(self) -> str:
        """Show which stream it is."""
        return f"<LaneStream {self.stream_id}>"

    @property
    def incomplete(self) -> bool:
        """Whether a message has begun and not ended."""
        return bool(self._partial)

    @property
    def takes_whole_frames(self) -> bool:
        """Whether a frame that holds one whole message needs no further look."""
        return (
            not self._partial
            and self.failure is None
            and self._max_message_bytes >= _MOST_BYTES_IN_A_FRAME
        )

    def drained(self, size: int) -> None:
        """Note that the user has taken messages: their room is the peer's again.

        Args:
            size: their bytes as flow control counts them, lengths and 5 for each.

        Raises:
            ValueError: more than there was.
        """
        credit = self.credit
        if not 0 <= size <= credit.received - credit.drained - len(self._partial):
            text = f"{size} bytes were not there to be drained"
            raise ValueError(text)
        credit.drained += size
        self._settle()

    def set_window(self, new: int) -> None:
        """Follow a change of our own SETTINGS_INITIAL_WINDOW_SIZE; call it when it is sent."""
        self.credit.set_window(new)
        self._settle()

    def window_acknowledged(self, size: int) -> None:
        """Follow the peer's acknowledgement of such a change.

        Until then, and for ever if this is never called, the peer may go by the older windows too.
        """
        self.credit.window_acknowledged(size)

    def take(self, data: bytes, start: int, end: int, overhead: int) -> None:
        """Take a frame's payload, which stands in data[start:end].

        Args:
            data: bytes.
            start: where the payload begins.
            end: where it ends.
            overhead: bytes of padding in the same frame.
        """
        self.credit.received += end - start + overhead
        self.credit.drained += overhead
        if self.failure is None:
            self._cut(data, start, end)
            self._settle()

    def _cut(self, data: bytes, start: int, end: int) -> None:
        partial = self._partial
        while start < end:
            if not partial and end - start >= _PREFIX_BYTES:
                flag, length = _PREFIX.unpack_from(data, start)
                stop = start + _PREFIX_BYTES + length
                if stop <= end and not flag and length <= self._max_message_bytes:
                    self.messages.append(data[start + _PREFIX_BYTES : stop])
                    start = stop
                    continue
            start = self._resume(data, start, end)
            if self.failure is not None:
                return

    def _resume(self, data: bytes, start: int, end: int) -> int:
        """Go on with the message in progress; return how far it went."""
        partial = self._partial
        if len(partial) < _PREFIX_BYTES:
            stop = min(start + _PREFIX_BYTES - len(partial), end)
            partial += data[start:stop]
            self.missing = _PREFIX_BYTES - len(partial)
            if self.missing:
                return stop
            flag, length = _PREFIX.unpack(partial)
            self.failure = self._refuse(flag, length)
            if self.failure is not None:
                return stop
            self.missing = length
            start = stop
        stop = min(start + self.missing, end)
        partial += memoryview(data)[start:stop]
        self.missing -= stop - start
        if not self.missing:
            self.messages.append(bytes(memoryview(partial)[_PREFIX_BYTES:]))
            self._partial = bytearray()
        return stop

    def _refuse(self, flag: int, length: int) -> LaneFailure | None:
        if flag:
            text = "the server sent a compressed message, which was not agreed upon"
            return LaneFailure(LaneFault.COMPRESSED, text)
        if length > self._max_message_bytes:
            text = f"a message of {length} bytes exceeds max_receive_bytes"
            return LaneFailure(LaneFault.TOO_LONG, text)
        return None

    def end(self) -> None:
        """Write no more credit: nothing can come any more, or nobody wants it."""
        self._ended = True

    def _settle(self) -> None:
        if not self._queued and not self._ended and self.credit.due(self.missing):
            self._queued = True
            self._due.append(self)

    def take_credit(self) -> int:
        """Return the credit that is to be written now, counted as written."""
        self._queued = False
        if self._ended or self.failure is not None:
            return 0
        due = self.credit.due(self.missing)
        self.credit.granted += due
        return due
