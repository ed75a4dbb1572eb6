"""The data lane: extracts DATA frames of registered streams from the bytes of a connection. Pure.

h2 spends more time on a DATA frame than the rest of the client on the message in it. So the lane
sees the bytes before h2, removes these frames, cuts their payloads into messages, and passes
everything else to h2, unchanged and in order. It tracks just enough of HTTP/2 (RFC 9113) for that:

- the lane handles a stream's DATA frames from its first HEADERS frame until the peer ends or resets
  it. Before and after that they are errors, which are left to h2;
- END_STREAM on a DATA frame reaches h2 on an empty frame in its place;
- a header block is passed to h2 whole, and so is a frame that is too long, with all after it;
- h2 never sees these bytes, so the lane alone gives credit for them: the connection's at once, in
  bulk, a stream's as its user consumes it (`LaneCredit`);
- if the peer sends more than its windows allow, h2 is made to fail with FLOW_CONTROL_ERROR, as it
  would if it had counted the bytes itself.

h2 must not be asked to compare a response's `content-length` with its body, as it sees none; gRPC
servers send none with streams.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from struct import Struct
from typing import Final

from liftbridge_aio.wire.framing import PREFIX_BYTES

from .lane_stream import LanePhase, LaneStream

_HEADER: Final = Struct(">IBI")
"""A frame's header: length and type, flags, stream."""
_HEADER_BYTES: Final = 9
_MAX_FRAME_BYTES: Final = 2**14
"""SETTINGS_MAX_FRAME_SIZE: we never allow more."""
_LONGEST: Final = _MAX_FRAME_BYTES << 8 | 0xFF
"""No length and type together are greater."""

_WHOLE_MESSAGE: Final = Struct(">IQH")
"""The head of a DATA frame that holds exactly one message, read as three fields, which is faster
than five: the frame's length and type 0; no flags, the stream, no compression, and the upper half
of the message's length, which is 0; its lower half."""
_WHOLE_MESSAGE_BYTES: Final = 14
_KEY_SHIFT: Final = 24
"""The position of the stream in the second of these fields."""
_LARGEST_WHOLE: Final = _MAX_FRAME_BYTES - PREFIX_BYTES
_CUT_AT_ONCE: Final = 16
"""The number of equally long frames in a row that are cut at once."""

_DATA: Final = 0
_HEADERS: Final = 1
_RST_STREAM: Final = 3
_PUSH_PROMISE: Final = 5
_WINDOW_UPDATE: Final = 8
_CONTINUATION: Final = 9

_END_STREAM: Final = 0x1
_END_HEADERS: Final = 0x4
_PADDED: Final = 0x8
_ID_MASK: Final = 2**31 - 1

_WINDOW_UPDATE_FRAME: Final = Struct(">IBII")
_WINDOW_UPDATE_HEAD: Final = 4 << 8 | _WINDOW_UPDATE
_OVERFLOW: Final = 2 * _WINDOW_UPDATE_FRAME.pack(_WINDOW_UPDATE_HEAD, 0, 0, 2**31 - 1)
"""Makes h2 fail with FLOW_CONTROL_ERROR: one may be within bounds, two are not."""

_CONNECTION_BULK: Final = 2**20
_MAX_DROPPED: Final = 1024


@lru_cache(maxsize=64)
def _cutter(size: int) -> Callable[[bytes, int], tuple[bytes, ...]]:
    """Return a function that cuts frames with messages of this size into heads and messages."""
    return Struct(f"{_WHOLE_MESSAGE_BYTES}s{size}s" * _CUT_AT_ONCE).unpack_from


class DataLane:
    """The DATA frames received on one connection, as its client.

    It must see every byte of the connection from the first one on: otherwise it would take the
    middle of a frame for the beginning of one.

    Args:
        connection_window: bytes that the peer may send ahead on all streams together.
    """

    def __init__(self, connection_window: int = 2**31 - 1) -> None:
        self.touched: list[LaneStream] = []
        """Streams that got messages, or failed, since the lane's user last emptied this list."""
        self.violation: str | None = None
        """Violation of flow control by the peer, for which h2 was made to fail; None if none."""
        self.overlong = False
        """True if the peer has begun a frame that is longer than allowed."""
        self._connection_window = connection_window
        self._connection_bulk = min(_CONNECTION_BULK, max(connection_window >> 2, 1))
        self._connection_owed = 0
        self._streams: dict[int, LaneStream] = {}
        self._dropped: dict[int, None] = {}
        self._whole: dict[int, LaneStream] = {}
        """By key, the streams whose whole messages need no further checks."""
        self._due: list[LaneStream] = []
        self._tail = b""
        self._in_header_block = False
        self._all_to_h2 = False
        self._round = 0

    def open(self, stream_id: int, *, window: int, max_message_bytes: int) -> LaneStream:
        """Register a stream: before anything can be received on it, so when its request is sent.

        Args:
            stream_id: its number.
            window: our SETTINGS_INITIAL_WINDOW_SIZE, in bytes.
            max_message_bytes: a longer message fails the stream.

        Raises:
            ValueError: it was registered before.
        """
        if stream_id in self._streams:
            raise ValueError(f"stream {stream_id} was registered before")
        stream = LaneStream(
            stream_id, window=window, max_message_bytes=max_message_bytes, due=self._due
        )
        self._streams[stream_id] = stream
        return stream

    def close(self, stream_id: int) -> None:
        """Release a stream that has ended, or that is reset now. Idempotent.

        What is still received in the second case is discarded.
        """
        stream = self._streams.get(stream_id)
        if stream is None or stream.phase is LanePhase.DROPPED:
            return
        if stream.phase is LanePhase.ENDED:
            del self._streams[stream_id]
            return
        stream.drop()
        self._whole[stream_id << _KEY_SHIFT] = stream
        self._dropped[stream_id] = None
        if len(self._dropped) > _MAX_DROPPED:
            self._forget(next(iter(self._dropped)))

    def feed(self, data: bytes) -> bytes:
        """Process bytes from the peer; return those that are for h2, in whole frames."""
        if self._all_to_h2:
            return data
        if self._tail:
            data = self._tail + data
        if not self.touched:
            self._round += 1
        position = self._take_whole_messages(data, 0)
        if position == len(data) and self.violation is None:
            self._tail = b""
            return b""
        return self._process_frames(data, position)

    def credit(self) -> bytes:
        """Return the WINDOW_UPDATE frames that are due; the caller must write them now."""
        if not self._due and self._connection_owed < self._connection_bulk:
            return b""
        frames: list[bytes] = []
        pack = _WINDOW_UPDATE_FRAME.pack
        if self._connection_owed >= self._connection_bulk:
            frames.append(pack(_WINDOW_UPDATE_HEAD, 0, 0, self._connection_owed))
            self._connection_owed = 0
        for stream in self._due:
            increment = stream.take_credit()
            if increment:
                frames.append(pack(_WINDOW_UPDATE_HEAD, 0, stream.stream_id, increment))
        self._due.clear()
        return b"".join(frames)

    # The usual frames: one whole message each

    def _take_whole_messages(self, data: bytes, position: int) -> int:
        """Take frames that hold one message each; return the position behind them."""
        unpack = _WHOLE_MESSAGE.unpack_from
        whole = self._whole
        last = len(data) - _WHOLE_MESSAGE_BYTES
        if position > last or self._in_header_block:
            return position
        stream = whole.get(unpack(data, position)[1])
        if stream is None:
            return position
        begin = position = self._take_equally_long(data, position, stream)
        current = 0
        append = stream.messages.append
        appends: dict[int, Callable[[bytes], None]] = {}
        append_of = appends.get
        filled: list[tuple[LaneStream, list[bytes], int]] = []
        while position <= last:
            head, key, size = unpack(data, position)
            if key != current:
                known = append_of(key)
                if known is None:
                    stream = whole.get(key)
                    if stream is None:
                        break
                    messages = stream.messages
                    known = appends[key] = messages.append
                    filled.append((stream, messages, len(messages)))
                append = known
                current = key
            start = position + _WHOLE_MESSAGE_BYTES
            after = start + size
            if (
                head != size + PREFIX_BYTES << 8
                or after > last + _WHOLE_MESSAGE_BYTES
                or size > _LARGEST_WHOLE
            ):
                break
            append(data[start:after])
            position = after
        self._count_filled(filled, position - begin)
        return position

    def _take_equally_long(self, data: bytes, position: int, stream: LaneStream) -> int:
        """Take equally long frames of one stream, many at a time; return the position behind them.

        This takes less than half of the time.
        """
        head, _, size = _WHOLE_MESSAGE.unpack_from(data, position)
        step = _WHOLE_MESSAGE_BYTES + size
        last = len(data) - step * _CUT_AT_ONCE
        if position > last or size > _LARGEST_WHOLE or head != size + PREFIX_BYTES << 8:
            return position
        prefix = data[position : position + _WHOLE_MESSAGE_BYTES]
        if not data.startswith(prefix, position + step * (_CUT_AT_ONCE - 1)):
            return position
        begin = position
        cut = _cutter(size)
        messages = stream.messages
        while position <= last:
            pieces = cut(data, position)
            if pieces[::2].count(prefix) != _CUT_AT_ONCE:
                break
            messages += pieces[1::2]
            position += step * _CUT_AT_ONCE
        if position > begin:
            self._count(stream, (position - begin) // step * (step - _HEADER_BYTES))
        return position

    def _count_filled(self, filled: list[tuple[LaneStream, list[bytes], int]], taken: int) -> None:
        """Count received bytes, given for each stream its messages and how many it had before."""
        for stream, messages, before in filled:
            count = len(messages) - before
            if len(filled) == 1:
                size = taken - _HEADER_BYTES * count
            else:
                size = sum(map(len, messages[before:])) + PREFIX_BYTES * count
            if size:
                self._count(stream, size)

    def _count(self, stream: LaneStream, size: int) -> None:
        self._connection_owed += size
        if stream.phase is LanePhase.DROPPED:
            stream.messages.clear()
            return
        stream.credit.received += size
        self._touch(stream)
        self._check_flow_control(stream)

    def _touch(self, stream: LaneStream) -> None:
        if stream.round != self._round:
            stream.round = self._round
            self.touched.append(stream)

    def _check_flow_control(self, stream: LaneStream) -> None:
        if stream.credit.exceeded:
            self.violation = (
                f"the server exceeded the flow-control window of stream {stream.stream_id}"
            )
        elif self._connection_owed > self._connection_window:
            self.violation = "the server exceeded the window of the connection"

    # All other frames

    def _process_frames(self, data: bytes, position: int) -> bytes:
        """Process bytes that begin with another frame; return those that are for h2."""
        out: list[bytes] = []
        to_pass = position
        end = len(data)
        while end - position >= _HEADER_BYTES:
            head, flags, stream_id = _HEADER.unpack_from(data, position)
            if head > _LONGEST:
                self._all_to_h2 = self.overlong = True
                position = end
                break
            start = position + _HEADER_BYTES
            after = start + (head >> 8)
            if after > end:
                break
            # The highest bit is reserved and must be ignored (section 4.1).
            instead = self._process_frame(
                data, start, after, head & 0xFF, flags, stream_id & _ID_MASK
            )
            if instead is not None:
                out += (data[to_pass:position], instead)
                to_pass = after
            position = self._take_whole_messages(data, after)
            if position != after:
                out.append(data[to_pass:after])
                to_pass = position
        self._tail = data[position:]
        out.append(data[to_pass:position])
        if self.violation is not None:
            self._all_to_h2 = True
            out.append(_OVERFLOW)
        return b"".join(out)

    def _process_frame(
        self, data: bytes, start: int, after: int, kind: int, flags: int, stream_id: int
    ) -> bytes | None:
        """Process a frame; return what h2 gets in its place, None if h2 gets the frame itself."""
        if self._in_header_block:
            self._in_header_block = not (kind == _CONTINUATION and flags & _END_HEADERS)
        elif kind == _DATA:
            return self._process_data(data, start, after, flags, stream_id)
        elif kind == _RST_STREAM:
            self._end(stream_id)
        elif kind in (_HEADERS, _PUSH_PROMISE):
            self._in_header_block = not flags & _END_HEADERS
            if kind == _HEADERS and flags & _END_STREAM:
                self._end(stream_id)
            elif kind == _HEADERS:
                self._begin(stream_id)
        return None

    def _process_data(
        self, data: bytes, start: int, after: int, flags: int, stream_id: int
    ) -> bytes | None:
        stream = self._streams.get(stream_id)
        if stream is None or stream.phase in _DATA_IS_AN_ERROR:
            return None
        size = after - start
        padding = 0
        if flags & _PADDED:
            if not size or data[start] >= size:
                return None
            padding = 1 + data[start]
        self._connection_owed += size
        if stream.phase is LanePhase.OPEN:
            self._fill(stream, data, start, after, padding)
        if not flags & _END_STREAM:
            return b""
        was_dropped = stream.phase is LanePhase.DROPPED
        self._end(stream_id)
        return b"" if was_dropped else _HEADER.pack(_DATA, _END_STREAM, stream_id)

    def _fill(self, stream: LaneStream, data: bytes, start: int, after: int, padding: int) -> None:
        """Pass a payload to its stream; it follows one byte of the padding, if there is any."""
        before = len(stream.messages)
        failed_before = stream.failure is not None
        first = start + 1 if padding else start
        stream.take(data, first, first + after - start - padding, padding)
        if len(stream.messages) != before or (stream.failure is not None) != failed_before:
            self._touch(stream)
        if after != start:
            self._check_flow_control(stream)
        self._note_whole(stream)

    def _note_whole(self, stream: LaneStream) -> None:
        key = stream.stream_id << _KEY_SHIFT
        if stream.may_take_whole(_MAX_FRAME_BYTES):
            self._whole[key] = stream
        else:
            self._whole.pop(key, None)

    def _begin(self, stream_id: int) -> None:
        """Handle HEADERS: DATA may follow now."""
        stream = self._streams.get(stream_id)
        if stream is not None and stream.phase is LanePhase.AWAITED:
            stream.phase = LanePhase.OPEN
            self._note_whole(stream)

    def _end(self, stream_id: int) -> None:
        """Handle a stream that the peer has ended or reset: no DATA may follow any more."""
        stream = self._streams.get(stream_id)
        if stream is None:
            return
        if stream.phase is LanePhase.DROPPED:
            self._forget(stream_id)
        else:
            stream.phase = LanePhase.ENDED
            self._whole.pop(stream_id << _KEY_SHIFT, None)

    def _forget(self, stream_id: int) -> None:
        """Leave what may still be received of a dropped stream to h2."""
        del self._dropped[stream_id]
        del self._streams[stream_id]
        del self._whole[stream_id << _KEY_SHIFT]


_DATA_IS_AN_ERROR: Final = (LanePhase.AWAITED, LanePhase.ENDED)
