"""The data lane: takes DATA frames of registered streams out of the bytes of a connection (pure).

h2 spends more time on a DATA frame than all the rest of the client on the message in it. So the
lane stands before h2, takes these frames away, cuts their payloads into messages, and gives h2
everything else, untouched and in order. It follows just enough of HTTP/2 (RFC 9113) for that:

- a stream's DATA frames are the lane's from its first HEADERS frame until the peer ends or resets
  it. Before and after, they are errors, which h2 knows how to treat;
- END_STREAM on a DATA frame reaches h2 on an empty frame in its place;
- within a header block everything is h2's, and so is a frame that is too long, with all after it;
- flow control: h2 never sees these bytes, so the lane alone gives credit for them. The
  connection's comes back at once, in bulk; a stream's as its user drains it (`LaneCredit`);
- a peer that sends more than it was allowed makes h2 fail as it would have failed itself.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from .lane_stream import LaneStream

_HEADER: Final = Struct(">IBI")
"""A frame's header: length and type, flags, stream."""
_HEADER_BYTES: Final = 9
_WHOLE_MESSAGE: Final = Struct(">IQH")
"""The first bytes of a DATA frame that holds one message: length of the frame (and type 0); flags,
stream, no compression and upper half of the message's length; its lower half."""
_WHOLE_MESSAGE_BYTES: Final = 14
_KEY_SHIFT: Final = 24
"""Where the stream stands in the middle one of these."""
_PREFIX_BYTES: Final = 5
_MAX_FRAME_BYTES: Final = 2**14
"""We never allow more."""

_DATA: Final = 0
_HEADERS: Final = 1
_RST_STREAM: Final = 3
_PUSH_PROMISE: Final = 5
_WINDOW_UPDATE: Final = 8
_CONTINUATION: Final = 9

_END_STREAM: Final = 0x1
_END_HEADERS: Final = 0x4
_PADDED: Final = 0x8
_STREAM_ID_MASK: Final = 2**31 - 1

_WINDOW_UPDATE_FRAME: Final = Struct(">IBII")
_WINDOW_UPDATE_HEAD: Final = 4 << 8 | _WINDOW_UPDATE
_OVERFLOW: Final = 2 * _WINDOW_UPDATE_FRAME.pack(_WINDOW_UPDATE_HEAD, 0, 0, 2**31 - 1)
"""Makes h2 fail with FLOW_CONTROL_ERROR: one may be allowed, two are too much."""

_CONNECTION_BULK: Final = 2**20
_MAX_CLOSED: Final = 1024


class DataLane:
    """The DATA frames of one connection, on our side of it, which is the client's.

    Args:
        connection_window: bytes that the peer may have on the way on all streams together.
    """

    def __init__(self, connection_window: int = 2**31 - 1) -> None:
        self.touched: list[LaneStream] = []
        """Streams that got messages, or failed, since whoever looks at this last cleared it."""
        self.violation: str | None = None
        """How the peer broke flow control; h2 has been made to fail then."""
        self._connection_window = connection_window
        self._connection_bulk = min(_CONNECTION_BULK, max(connection_window >> 2, 1))
        self._connection_owed = 0
        self._streams: dict[int, LaneStream] = {}
        self._taking: set[int] = set()
        self._between: dict[int, LaneStream] = {}
        self._closed: dict[int, None] = {}
        self._due: list[LaneStream] = []
        self._tail = b""
        self._in_header_block = False
        self._all_to_h2 = False
        self._round = 0

    def open(self, stream_id: int, *, window: int, max_message_bytes: int) -> LaneStream:
        """Register a stream: before anything can come on it, so right after its request.

        Args:
            stream_id: its number.
            window: our SETTINGS_INITIAL_WINDOW_SIZE.
            max_message_bytes: a longer message fails the stream.

        Raises:
            ValueError: it is registered.
        """
        if stream_id in self._streams:
            text = f"stream {stream_id} is open already"
            raise ValueError(text)
        stream = LaneStream(
            stream_id, window=window, max_message_bytes=max_message_bytes, due=self._due
        )
        self._streams[stream_id] = stream
        return stream

    def close(self, stream_id: int) -> None:
        """Let go of a stream that has ended, or that we have reset. Idempotent.

        What still comes for a stream in the second case is dropped.
        """
        stream = self._streams.pop(stream_id, None)
        if stream is None:
            return
        stream.end()
        self._between.pop(stream_id << _KEY_SHIFT, None)
        if stream_id in self._taking:
            self._taking.discard(stream_id)
            if len(self._closed) >= _MAX_CLOSED:
                del self._closed[next(iter(self._closed))]
            self._closed[stream_id] = None

    def feed(self, data: bytes) -> bytes:
        """Take what came from the peer; return what h2 must see of it, whole frames only."""
        if self._all_to_h2:
            return data
        if self._tail:
            data = self._tail + data
        if not self.touched:
            self._round += 1
        out: list[bytes] = []
        end = len(data)
        position = 0
        to_pass = 0
        while True:
            taken = self._take_whole_messages(data, position, end)
            if taken != position:
                out.append(data[to_pass:position])
                to_pass = position = taken
            after = self._end_of_frame(data, position, end)
            if after == position:
                break
            instead = self._treat(data, position, after)
            if instead is not None:
                out += (data[to_pass:position], instead)
                to_pass = after
            position = after
        self._tail = data[position:]
        out.append(data[to_pass:position])
        if self.violation is not None:
            self._all_to_h2 = True
            out.append(_OVERFLOW)
        return b"".join(out)

    def _end_of_frame(self, data: bytes, position: int, end: int) -> int:
        """Find the end of the frame that begins here; the same place if it is not whole yet."""
        if end - position < _HEADER_BYTES:
            return position
        length = _HEADER.unpack_from(data, position)[0] >> 8
        if length > _MAX_FRAME_BYTES:
            self._all_to_h2 = True
            return end
        after: int = position + _HEADER_BYTES + length
        return after if after <= end else position

    def _take_whole_messages(self, data: bytes, position: int, end: int) -> int:
        """Take frames that hold one whole message each, as long as they follow each other."""
        unpack = _WHOLE_MESSAGE.unpack_from
        between = self._between
        if not between or self._in_header_block:
            return position
        last = end - _WHOLE_MESSAGE_BYTES
        current = -1
        known: dict[int, tuple[LaneStream, list[bytes], int]] = {}
        append = list[bytes]().append
        while position <= last:
            head, key, size = unpack(data, position)
            if key != current:
                entry = known.get(key)
                if entry is None:
                    stream = between.get(key)
                    if stream is None:
                        break
                    entry = known[key] = (stream, stream.messages, len(stream.messages))
                append = entry[1].append
                current = key
            after = position + _WHOLE_MESSAGE_BYTES + size
            if head != size + _PREFIX_BYTES << 8 or after > end:
                break
            append(data[position + _WHOLE_MESSAGE_BYTES : after])
            position = after
        for stream, messages, before in known.values():
            count = len(messages) - before
            if count:
                size = sum(map(len, messages[before:])) + _PREFIX_BYTES * count
                stream.credit.received += size
                self._connection_owed += size
                self._touch(stream)
                self._judge(stream)
        return position

    def _touch(self, stream: LaneStream) -> None:
        if stream.round != self._round:
            stream.round = self._round
            self.touched.append(stream)

    def _judge(self, stream: LaneStream) -> None:
        if stream.credit.exceeded:
            self.violation = f"the server sent more on stream {stream.stream_id} than it may"
        if self._connection_owed > self._connection_window:
            self.violation = "the server sent more on the connection than it may"

    def _treat(self, data: bytes, position: int, after: int) -> bytes | None:
        """Treat a frame; return what h2 gets in its place, None for the frame as it is."""
        if self._all_to_h2:
            return None
        head, flags, stream_id = _HEADER.unpack_from(data, position)
        kind = head & 0xFF
        # The highest bit is reserved, and to be ignored (section 4.1).
        stream_id &= _STREAM_ID_MASK
        if self._in_header_block:
            self._in_header_block = not (kind == _CONTINUATION and flags & _END_HEADERS)
        elif kind == _DATA:
            return self._treat_data(data, position + _HEADER_BYTES, after, flags, stream_id)
        elif kind in (_HEADERS, _PUSH_PROMISE):
            self._in_header_block = not flags & _END_HEADERS
            if kind == _HEADERS:
                self._follow_headers(stream_id, ends=bool(flags & _END_STREAM))
        elif kind == _RST_STREAM:
            self._end(stream_id)
        return None

    def _follow_headers(self, stream_id: int, *, ends: bool) -> None:
        stream = self._streams.get(stream_id)
        if ends:
            self._end(stream_id)
        elif stream is not None and stream_id not in self._taking:
            self._taking.add(stream_id)
            self._note_between(stream)

    def _end(self, stream_id: int) -> None:
        self._closed.pop(stream_id, None)
        stream = self._streams.get(stream_id)
        if stream is not None:
            self._taking.discard(stream_id)
            self._between.pop(stream_id << _KEY_SHIFT, None)
            stream.end()

    def _note_between(self, stream: LaneStream) -> None:
        key = stream.stream_id << _KEY_SHIFT
        if stream.takes_whole_frames:
            self._between[key] = stream
        else:
            self._between.pop(key, None)

    def _treat_data(
        self, data: bytes, start: int, after: int, flags: int, stream_id: int
    ) -> bytes | None:
        stream = self._streams.get(stream_id) if stream_id in self._taking else None
        if stream is None and stream_id not in self._closed:
            return None
        size = after - start
        overhead = 0
        if flags & _PADDED:
            if not size or data[start] >= size:
                return None
            overhead = data[start] + 1
            start += 1
        self._connection_owed += size
        if stream is None:
            if flags & _END_STREAM:
                del self._closed[stream_id]
            return b""
        before = len(stream.messages)
        stream.take(data, start, after - max(overhead - 1, 0), overhead)
        if len(stream.messages) != before or stream.failure is not None:
            self._touch(stream)
        if size:
            self._judge(stream)
        self._note_between(stream)
        if not flags & _END_STREAM:
            return b""
        self._end(stream_id)
        return _HEADER.pack(_DATA, _END_STREAM, stream_id)

    def credit(self) -> bytes:
        """Return the WINDOW_UPDATE frames that are due; to be written at once."""
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
