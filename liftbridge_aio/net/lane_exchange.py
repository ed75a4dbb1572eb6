"""The fast path of streaming calls: messages come from the data lane, by callback.

grpclib and h2 still open the call, read its headers and trailers and end it; they tell so through
three objects of a grpclib stream that are replaced here: its note of headers, its buffer and its
wrapper.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any, Final, Self

from grpclib.client import Channel
from grpclib.exceptions import StreamTerminatedError
from h2.exceptions import H2Error
from h2.stream import StreamInputs

from liftbridge_aio.errors import NotLiftbridge
from liftbridge_aio.status import CallFailure, Code
from liftbridge_aio.wire.framing import PREFIX_BYTES, framed
from liftbridge_aio.wire.rpc import Rpc

from .exchange import INCOMPLETE, Exchange
from .lane_stream import LaneFault, LaneStream
from .protocol import BrokerProtocol
from .pumped_exchange import ENDED
from .receiver import Receiver

_CODES: Final = {
    LaneFault.COMPRESSED: Code.INTERNAL,
    LaneFault.TOO_LONG: Code.RESOURCE_EXHAUSTED,
}

_HEADER: Final = Struct(">IBI")
"""Of a frame: its length and type, which is 0 for DATA; flags; the stream."""
_END_STREAM: Final = 0x1
_BURST_BYTES: Final = 2**18
"""What goes to the transport in one write, at most."""


class LaneExchange(Exchange):
    """A streaming call on the data lane; made by `Link.stream`."""

    _stream: LaneStream

    def __init__(
        self,
        channel: Channel,
        rpc: Rpc[Any, Any],
        *,
        max_receive_bytes: int,
        protocol: BrokerProtocol,
        window: Callable[[], int],
    ) -> None:
        super().__init__(channel, rpc, max_receive_bytes=max_receive_bytes)
        self._protocol = protocol
        self._window = window
        self._receiver: Receiver | None = None
        self._arrival: asyncio.Future[None] | None = None
        self._accepted = False
        self._at_end = False
        self._broken: StreamTerminatedError | None = None
        self._number = 0
        self._sending = False

    async def __aenter__(self) -> Self:
        """Send the request's headers. Cancelling resets the call.

        Raises:
            CallFailure: the connection is gone.
        """
        await super().__aenter__()
        raw = self._call._stream  # noqa: SLF001 - pinned by a test
        assert raw.id is not None  # noqa: S101 - the headers are sent
        self._number = raw.id
        self._stream = self._protocol.register(
            self, raw.id, window=self._window(), max_message_bytes=self._max_receive_bytes
        )
        raw.headers_received = _HeadersReceived(self)
        raw.buffer = _Buffer(self)  # type: ignore[assignment]
        raw.wrapper = _Wrapper(self, raw.wrapper)  # type: ignore[assignment]
        return self

    # Sending

    async def send(self, messages: Sequence[bytes], *, end: bool = False) -> None:
        """Send messages, many in one write; waits while the server gives no credit.

        Cancelling may leave some of them sent, and the exchange must be left then.

        Raises:
            CallFailure: the call or the connection broke.
        """
        await self.send_framed([framed(message) for message in messages], end=end)

    async def send_framed(self, frames: Sequence[bytes], *, end: bool = False) -> None:
        """Send messages that have their prefixes already; else like `send`.

        Raises:
            CallFailure: the call or the connection broke.
        """
        if self._left:
            raise CallFailure(Code.UNAVAILABLE, "the call is over", self._reach)
        data = b"".join(frames)
        written = 0
        self._sending = True
        try:
            with self._translated(), self._call._wrapper:  # noqa: SLF001 - pinned by a test
                raw = self._call._stream  # noqa: SLF001 - same
                while written < len(data):
                    await raw.connection.write_ready.wait()
                    taken = self._write(data, written, end=end)
                    if not taken:
                        raw.window_updated.clear()
                        await raw.window_updated.wait()
                    written += taken
        finally:
            self._sending = False
            whole = written == len(data)
            self.attempted += len(frames) if whole else _begun(frames, written)

    @property
    def room(self) -> int:
        """Bytes that `send_now` takes, prefixes included; 0 if something has to be awaited."""
        raw = self._call._stream  # noqa: SLF001 - pinned by a test
        # Credit may have come for a `send` that has not got to go on yet, within a message.
        if self._sending or self._left or self._broken is not None:
            return 0
        if not raw.connection.write_ready.is_set() or raw.connection.is_closing():
            return 0
        try:
            credit: int = raw._h2_connection.local_flow_control_window(self._number)  # noqa: SLF001 - same
        except H2Error:
            return 0  # whoever waits for the call hears why
        return max(min(credit, _BURST_BYTES), 0)

    def send_now(self, frames: Sequence[bytes]) -> bool:
        """Send messages at once if there is room for all of them; tell whether they are sent.

        Args:
            frames: the messages with their prefixes.
        """
        data = b"".join(frames)
        if len(data) > self.room:
            return False  # one of them might get stuck halfway
        try:
            return self._write(data, 0, end=False) == len(data)
        except (CallFailure, H2Error, OSError):
            return False  # as above

    def _write(self, data: bytes, start: int, *, end: bool) -> int:
        """Write as much as the server gives credit for, if any; return how much."""
        raw = self._call._stream  # noqa: SLF001 - pinned by a test
        h2 = raw._h2_connection  # noqa: SLF001 - same
        # A lost connection shows here some rounds of the event loop before grpclib says so, and
        # writing on would fill the log with asyncio's warnings.
        if raw.connection.is_closing():
            raise CallFailure(Code.UNAVAILABLE, "the connection broke", self._reach)
        window = h2.local_flow_control_window(self._number)
        if window <= 0:
            return 0
        self._sent = True
        stop = min(len(data), start + min(window, _BURST_BYTES))
        # First what h2 has to say, and its word that DATA may be sent. Making a frame takes it as
        # long as two or three messages take the rest of the client.
        stream = h2.streams[self._number]
        stream.state_machine.process_input(StreamInputs.SEND_DATA)
        pieces = [h2.data_to_send()]
        frame = h2.max_outbound_frame_size
        for first in range(start, stop, frame):
            last = min(first + frame, stop)
            flags = _END_STREAM if end and last == len(data) else 0
            pieces += (_HEADER.pack(last - first << 8, flags, self._number), data[first:last])
            if flags:
                stream.state_machine.process_input(StreamInputs.SEND_END_STREAM)
        h2.outbound_flow_control_window -= stop - start
        stream.outbound_flow_control_window -= stop - start
        raw._transport.write(b"".join(pieces))  # noqa: SLF001 - same
        return stop - start

    # Receiving

    async def receive(self) -> bytes | None:
        """Wait for the next message; None once the server has ended the call with OK.

        To be used before `deliver`. Cancelling loses no message.

        Raises:
            CallFailure: the server ended the call with an error, or the connection broke.
        """
        with self._translated():
            call = self._call
            if call.initial_metadata is None:
                await call.recv_initial_metadata()
            self._accepted = True
            stream = self._stream
            with call._wrapper:  # noqa: SLF001 - pinned by a test
                while not (stream.messages or stream.failure or self._at_end):
                    self._arrival = asyncio.get_running_loop().create_future()
                    await self._arrival
            if stream.messages:
                message = stream.messages.pop(0)
                self.drained(len(message) + PREFIX_BYTES)
                return message
            self._check_end()
            return None

    def _check_end(self) -> None:
        """Raise what the call ended with, unless that is OK."""
        failure = self._stream.failure
        if failure is not None:
            raise CallFailure(_CODES[failure.fault], failure.text)
        self._check_status()
        if self._stream.incomplete:
            raise CallFailure(Code.INTERNAL, INCOMPLETE)

    def deliver(self, receiver: Receiver) -> None:
        """Hand everything that comes from now on to `receiver`; the call stays open."""
        self._receiver = receiver
        self.arrived()
        if self._at_end:
            self._end()
        if self._broken is not None:
            self.terminated(self._broken)

    def headed(self) -> None:
        """Take note that the headers are here."""
        if self._receiver is not None and self._accept():
            self.arrived()

    def arrived(self) -> None:
        """Take note that the lane's stream has messages, or has failed."""
        receiver, stream = self._receiver, self._stream
        if receiver is None:
            if self._arrival is not None and not self._arrival.done():
                self._arrival.set_result(None)
            return
        if not self._accepted and not self._accept():
            return
        if stream.messages:
            messages, stream.messages = stream.messages, []
            failure = self._hand_over(receiver, messages)
            if failure is not None:
                self._finish(failure)
        if stream.failure is not None:
            self._end()

    def _accept(self) -> bool:
        """Look at the headers; without them nothing says that these are messages of gRPC."""
        call = self._call
        headers = call._stream.headers  # noqa: SLF001 - pinned by a test
        if headers is None:
            return False
        self._accepted = True
        try:
            with self._translated():
                call._raise_for_status(dict(headers))  # noqa: SLF001 - same
                call._raise_for_content_type(dict(headers))  # noqa: SLF001 - same
        except CallFailure as failure:
            self._finish(failure)
            return False
        return True

    def drained(self, size: int) -> None:
        """Give credit for messages of `size` bytes in all, prefixes included."""
        if not self._left:
            self._stream.drained(size)
            self._protocol.give_credit()

    def set_window(self, size: int) -> None:
        """Take note that the window that the server was given has changed."""
        self._stream.set_window(size)

    def window_acknowledged(self, size: int) -> None:
        """Take note that the server knows of a changed window."""
        self._stream.window_acknowledged(size)

    # Ending

    def ended(self) -> None:
        """Take note that the server has ended the call; its data and trailers are here."""
        self._at_end = True
        self.arrived()
        if self._receiver is not None:
            self._end()

    def _end(self) -> None:
        try:
            with self._translated():
                self._check_end()
        except CallFailure as failure:
            self._finish(failure)
        else:
            self._finish(CallFailure(Code.OK, ENDED))

    def terminated(self, error: StreamTerminatedError) -> None:
        """Take note that the call or its connection broke."""
        self._broken = error
        if self._receiver is not None:
            # Later, because grpclib may be walking through the streams, and this releases one.
            failure = self._failure_of_broken_call(error)
            failure.unfit = NotLiftbridge if self._protocol.foreign else None
            asyncio.get_running_loop().call_soon(self._finish, failure)

    def _finish(self, failure: CallFailure) -> None:
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            self.leave()
            self._hand_over_end(receiver, failure)

    def leave(self) -> None:
        """Leave the call; the receiver hears nothing more. May be called again."""
        self._receiver = None
        if not self._left and self._number:
            self._protocol.release(self._number)
        super().leave()


def _begun(frames: Sequence[bytes], written: int) -> int:
    """Count the messages of which something was written."""
    count = position = 0
    for frame in frames:
        if position >= written:
            break
        position += len(frame)
        count += 1
    return count


class _HeadersReceived(asyncio.Event):
    """Stands where grpclib notes that headers are here; messages may have come with them."""

    def __init__(self, exchange: LaneExchange) -> None:
        super().__init__()
        self._exchange = exchange

    def set(self) -> None:
        super().set()
        self._exchange.headed()


class _Buffer:
    """Stands where grpclib keeps what h2 gives it; of a stream on the lane that is its end."""

    def __init__(self, exchange: LaneExchange) -> None:
        self._exchange = exchange

    def add(self, data: bytes, ack_size: int) -> None:
        """Ignore the empty frame that carries the end of a stream."""

    def eof(self) -> None:
        self._exchange.ended()

    def unacked_size(self) -> int:
        return 0


class _Wrapper:
    """Stands where grpclib finds the tasks to wake when a stream breaks."""

    def __init__(self, exchange: LaneExchange, wrapper: Any) -> None:
        self._exchange = exchange
        self._wrapper = wrapper

    def cancel(self, error: StreamTerminatedError) -> None:
        self._wrapper.cancel(error)
        self._exchange.terminated(error)
