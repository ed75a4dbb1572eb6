"""The fast path of streaming calls: messages come from the data lane, by callback.

grpclib and h2 still open the call, read its headers and trailers and end it. Three objects of the
grpclib stream are replaced to learn of that: its event for headers, its buffer and its wrapper.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any, Final, Self

from grpclib.client import Channel
from grpclib.exceptions import StreamTerminatedError
from h2.exceptions import H2Error
from h2.stream import StreamInputs

from liftbridge_aio._core.status import CallFailure, Code
from liftbridge_aio.errors import NotLiftbridge
from liftbridge_aio.wire.framing import PREFIX_BYTES, framed
from liftbridge_aio.wire.rpc import Rpc

from .call import FAULT_CODES, INCOMPLETE, Call, Receiver
from .core.lane_stream import LaneStream
from .plain_call import ENDED
from .protocol import BrokerProtocol

logger = logging.getLogger("liftbridge_aio.net")

_HEADER: Final = Struct(">IBI")
"""A frame's header: length and type (0 is DATA), flags, stream."""
_END_STREAM: Final = 0x1
_BURST_BYTES: Final = 2**18
"""The most that goes to the transport in one write."""


class FastCall(Call):
    """A streaming call on the data lane; made by `BrokerConnection.stream`."""

    _stream: LaneStream

    def __init__(
        self,
        channel: Channel,
        rpc: Rpc[Any, Any],
        *,
        address: str,
        max_receive_bytes: int,
        protocol: BrokerProtocol,
        window: Callable[[], int],
    ) -> None:
        super().__init__(channel, rpc, address=address, max_receive_bytes=max_receive_bytes)
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

        After cancelling, some of them may be sent; close the call then.

        Raises:
            CallFailure: the call or the connection broke.
        """
        await self.send_framed([framed(message) for message in messages], end=end)

    async def send_framed(self, frames: Sequence[bytes], *, end: bool = False) -> None:
        """Send messages that have their gRPC prefixes already; otherwise like `send`.

        Raises:
            CallFailure: the call or the connection broke.
        """
        if self._closed:
            raise CallFailure(Code.UNAVAILABLE, "the call was closed", self._reach)
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
    def writable_bytes(self) -> int:
        """Bytes that `send_now` accepts, prefixes included; 0 if sending would have to wait."""
        raw = self._call._stream  # noqa: SLF001 - pinned by a test
        # A `send` in progress may be within a message, though credit for the rest has come.
        if self._sending or self._closed or self._broken is not None:
            return 0
        if not raw.connection.write_ready.is_set() or raw.connection.is_closing():
            return 0
        try:
            credit: int = raw._h2_connection.local_flow_control_window(self._number)  # noqa: SLF001 - same
        except H2Error:
            return 0  # the receiver gets the error
        return max(min(credit, _BURST_BYTES), 0)

    def send_now(self, frames: Sequence[bytes]) -> bool:
        """Send messages without waiting if all of them fit; return True if they were sent.

        Args:
            frames: the messages with their prefixes.
        """
        data = b"".join(frames)
        if len(data) > self.writable_bytes:
            return False  # a message must not be sent in part
        try:
            return self._write(data, 0, end=False) == len(data)
        except (CallFailure, H2Error, OSError):
            return False  # as above

    def _write(self, data: bytes, start: int, *, end: bool) -> int:
        """Write as much as the server's credit allows; return how many bytes."""
        raw = self._call._stream  # noqa: SLF001 - pinned by a test
        h2 = raw._h2_connection  # noqa: SLF001 - same
        # A lost connection shows here some iterations of the event loop before grpclib raises, and
        # further writes would fill the log with asyncio's warnings.
        if raw.connection.is_closing():
            raise CallFailure(Code.UNAVAILABLE, "the connection broke", self._reach)
        window = h2.local_flow_control_window(self._number)
        if window <= 0:
            return 0
        self._sent = True
        stop = min(len(data), start + min(window, _BURST_BYTES))
        # h2 checks that DATA may be sent, and its own frames go first. The frames are made here: h2
        # takes as long for one as the rest of the client for two or three messages.
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
                self.consumed(len(message) + PREFIX_BYTES)
                return message
            self._check_end()
            return None

    def _check_end(self) -> None:
        """Raise the status that the call ended with, unless it is OK."""
        failure = self._stream.failure
        if failure is not None:
            raise CallFailure(FAULT_CODES[failure.fault], failure.text)
        self._check_status()
        if self._stream.incomplete:
            raise CallFailure(Code.INTERNAL, INCOMPLETE)

    def deliver(self, receiver: Receiver) -> None:
        """Deliver everything received from now on to `receiver`; the call stays open."""
        self._receiver = receiver
        self.arrived()
        if self._at_end:
            self._end()
        if self._broken is not None:
            self.terminated(self._broken)

    def headers_received(self) -> None:
        """Handle the arrival of headers."""
        if self._receiver is not None and self._accept():
            self.arrived()

    def arrived(self) -> None:
        """Handle messages in the lane's stream, or its failure."""
        receiver, stream = self._receiver, self._stream
        if receiver is None:
            if self._arrival is not None and not self._arrival.done():
                self._arrival.set_result(None)
            return
        if not self._accepted and not self._accept():
            return
        if stream.messages:
            messages, stream.messages = stream.messages, []
            self._deliver_messages(receiver, messages)
        if stream.failure is not None:
            self._end()

    def _accept(self) -> bool:
        """Check the headers, without which nothing shows that these are gRPC messages."""
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

    def consumed(self, size: int) -> None:
        """Give credit for consumed messages of `size` bytes in all, prefixes included."""
        if not self._closed:
            self._stream.consumed(size)
            self._protocol.give_credit()

    def set_window(self, size: int) -> None:
        """Apply a change of the window that the server was given."""
        self._stream.set_window(size)

    def window_acknowledged(self, size: int) -> None:
        """Apply the server's acknowledgement of a changed window."""
        self._stream.window_acknowledged(size)

    # Ending

    def ended(self) -> None:
        """Handle the end of the call; its data and trailers have been received."""
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
        """Handle a broken call or connection."""
        self._broken = error
        if self._receiver is not None:
            # Not now: grpclib may be iterating over the streams, and this releases one.
            failure = self._failure_of_broken_call(error)
            failure.unusable = NotLiftbridge if self._protocol.not_http2 else None
            asyncio.get_running_loop().call_soon(self._finish, failure)

    def _finish(self, failure: CallFailure) -> None:
        receiver, self._receiver = self._receiver, None
        if receiver is None:
            return
        try:
            self.close()
        except Exception as error:  # noqa: BLE001 - the receiver gets it
            self._receiver = receiver
            self.failed(error)
        else:
            self._deliver_end(receiver, failure)

    def failed(self, error: Exception) -> None:
        """End the call for its receiver by a bug of the client."""
        logger.error("the end of %s could not be processed", self._name, exc_info=error)
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            receiver.broken(error)

    def close(self) -> None:
        """Close the call; the receiver is not called any more. Idempotent."""
        self._receiver = None
        if not self._closed and self._number:
            self._protocol.release(self._number)
        super().close()


def _begun(frames: Sequence[bytes], written: int) -> int:
    """Return the number of messages of which at least a part was written."""
    count = position = 0
    for frame in frames:
        if position >= written:
            break
        position += len(frame)
        count += 1
    return count


class _HeadersReceived(asyncio.Event):
    """Replaces grpclib's event for headers; messages may have come with them."""

    def __init__(self, call: FastCall) -> None:
        super().__init__()
        self._call = call

    def set(self) -> None:
        super().set()
        self._call.headers_received()


class _Buffer:
    """Replaces grpclib's buffer; of a stream on the lane h2 reports its end only."""

    def __init__(self, call: FastCall) -> None:
        self._call = call

    def add(self, data: bytes, ack_size: int) -> None:
        """Ignore the empty frame that carries the end of a stream."""

    def eof(self) -> None:
        self._call.ended()

    def unacked_size(self) -> int:
        return 0


class _Wrapper:
    """Replaces the object by which grpclib wakes the tasks that wait on a broken stream."""

    def __init__(self, call: FastCall, wrapper: Any) -> None:
        self._call = call
        self._wrapper = wrapper

    def cancel(self, error: StreamTerminatedError) -> None:
        self._wrapper.cancel(error)
        try:
            self._call.terminated(error)
        except Exception as fault:  # noqa: BLE001 - grpclib goes on to the connection's other calls
            asyncio.get_running_loop().call_soon(self._call.failed, fault)
