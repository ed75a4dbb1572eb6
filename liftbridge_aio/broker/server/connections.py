"""The server side of HTTP/2 connections, hardened against hostile clients.

grpclib's server leaves its connections open when it is closed (from Python 3.12 on, waiting for
it then never ends), and lets errors of malformed bytes escape into the event loop.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import struct
import time
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, cast

from grpclib.config import Configuration
from grpclib.protocol import H2Protocol
from grpclib.server import Handler, Server
from h2.events import RequestReceived, StreamReset
from h2.settings import SettingCodes

from liftbridge_aio._runtime.event_loop import begun_later
from liftbridge_aio.broker.faults.fault_injection import FaultInjector
from liftbridge_aio.wire.call_buffer import CallBuffer
from liftbridge_aio.wire.open_streams import count_seldom

from .framing import MessageCodec
from .service import LiftbridgeService
from .tls_connection import TLSConnection

_BACKLOG: Final = 1024
_MAX_CALLS: Final = 10_000  # concurrent on a connection; h2 allows 100, a Go server any number
_MAX_UNREAD_ANSWERS: Final = 2**17  # bytes of answers to frames that a client may leave unread
_WINDOW: Final = 2**26  # bytes; an unread call, of 4 MiB, must not block the others
_TIME_SLICE: Final = 0.005  # seconds for one connection before the event loop runs others
_MIN_CHUNK: Final = 2**12  # bytes that are processed between two reads of the clock
_MAX_CHUNK: Final = 2**16
_FLUSH_TIMEOUT: Final = 0.2  # seconds that a closing connection may take to send what is left
_LENGTH_BYTES: Final = 3  # at the beginning of a frame
_GO_AWAY_HEADER: Final = b"\x00\x00\x08\x07\x00" + bytes(4)  # 8 bytes, type 7, of stream 0

logger = logging.getLogger("liftbridge_aio.broker")


class ServerConnection(H2Protocol):
    """One client's connection."""

    listener: Listener
    transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the HTTP/2 preface; a frozen broker does so when it is thawed."""
        self.transport = cast("asyncio.Transport", transport)
        self.closed = asyncio.Event()
        self._last_call: int | None = None
        self.has_begun = False
        self._is_full = False
        self._unread_answers = 0
        self._unprocessed = b""
        self._chunk_bytes = _MAX_CHUNK
        self.listener.connections.add(self)
        if self.listener.is_frozen:
            self.transport.pause_reading()
        else:
            self._begin()

    def _begin(self) -> None:
        self.has_begun = True
        super().connection_made(self.transport)
        count_seldom(self.connection._connection)  # noqa: SLF001 - no public way
        self.processor.processors[RequestReceived] = self._take_call
        self.processor.processors[StreamReset] = self._take_reset
        settings: dict[SettingCodes | int, int] = {SettingCodes.MAX_CONCURRENT_STREAMS: _MAX_CALLS}
        self.connection._connection.update_settings(settings)  # noqa: SLF001 - no public way
        self.connection.flush()
        if self.listener.faults.refuses_connection():
            self.abort()

    def _take_call(self, event: RequestReceived) -> None:
        # Calls after a GOAWAY are ignored, as by a Go server.
        if self._last_call is None or event.stream_id <= self._last_call:
            self.processor.process_request_received(event)
            # The task of the call has not begun, with an eager task factory neither; see `_Loop`.
            call = self.processor.streams[event.stream_id]
            give_credit = partial(self.connection.ack, event.stream_id)
            call.buffer = CallBuffer(give_credit)  # type: ignore[assignment]

    def _take_reset(self, event: StreamReset) -> None:
        call = self.processor.streams.get(event.stream_id)
        handler = cast("Handler", self.processor.handler)
        task = None if call is None else handler._tasks.get(call)  # noqa: SLF001 - no public way
        self.processor.process_stream_reset(event)
        if task is not None:
            task.add_done_callback(lambda _: self._release_call(event.stream_id))

    def _release_call(self, number: int) -> None:
        """Release a call that was reset before it began: grpclib would keep it for ever."""
        call = self.processor.streams.pop(number, None)
        if call is not None and not self.connection.is_closing():
            self.connection.ack(number, call.buffer.unacked_size())

    def data_received(self, data: bytes) -> None:
        """Process bytes of the client; malformed ones close this connection only."""
        if self._unprocessed:
            self._unprocessed += data
        else:
            self._process(data)

    def _process(self, data: bytes) -> None:
        """Process bytes for a time slice, and the rest after other tasks have run.

        A single read may contain tens of thousands of frames, which take most of a second.
        """
        began = time.monotonic()
        done = 0
        while done < len(data):
            took = time.monotonic() - began
            if done and took > _TIME_SLICE and not self.transport.is_closing():
                self._unprocessed = data[done:]
                self.transport.pause_reading()
                asyncio.get_running_loop().call_soon(self._continue)
                break
            chunk = data[done : done + self._chunk_bytes]
            self._feed(chunk)
            done += len(chunk)
        # Frames of a byte take a hundred times as long as large ones.
        is_slow = time.monotonic() - began > _TIME_SLICE
        self._chunk_bytes = (
            max(self._chunk_bytes // 2, _MIN_CHUNK)
            if is_slow
            else min(self._chunk_bytes * 2, _MAX_CHUNK)
        )

    def _continue(self) -> None:
        if self.listener.is_frozen and not self.transport.is_closing():
            return
        data, self._unprocessed = self._unprocessed, b""
        self._process(data)
        if not self._unprocessed:
            self.transport.resume_reading()

    def _feed(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        before = self.transport.get_write_buffer_size()
        try:
            super().data_received(data)
        except Exception:  # hostile bytes raise anything in h2
            logger.debug("closing a connection after malformed bytes", exc_info=True)
            self.shut_down()
        else:
            if self._waits_for_overlong_frame():
                logger.debug("closing a connection on which a frame is too long")
                self.shut_down()
        self._count_answers(self.transport.get_write_buffer_size() - before)

    def _waits_for_overlong_frame(self) -> bool:
        """Return True if an overlong frame has begun, which h2 refuses only once it is complete."""
        http2 = self.connection._connection  # noqa: SLF001 - no public way
        begun = getattr(http2.incoming_buffer, "_data", b"")  # older versions have another name
        length = int.from_bytes(begun[:_LENGTH_BYTES], "big")
        return len(begun) >= _LENGTH_BYTES and length > http2.max_inbound_frame_size

    def _count_answers(self, size: int) -> None:
        """Abort a connection whose client lets answers pile up unread.

        Calls stop writing to a client that does not read; h2 still answers, say, its pings.
        """
        self._unread_answers = max(self._unread_answers + size, 0) if self._is_full else 0
        if self._unread_answers > _MAX_UNREAD_ANSWERS:
            logger.debug("closing a connection whose client reads no answers")
            self.abort()

    def freeze(self) -> None:
        """Neither read nor write until `thaw`."""
        self.transport.pause_reading()
        if self.has_begun:
            self.connection.pause_writing()

    def thaw(self) -> None:
        """Undo `freeze`."""
        if self.transport.is_closing():
            return
        if not self.has_begun:
            self._begin()
        elif not self._is_full:
            self.connection.resume_writing()
        self._continue()

    def pause_writing(self) -> None:
        """Suspend calls while the client does not read."""
        self._is_full = True
        super().pause_writing()

    def resume_writing(self) -> None:
        """Resume calls once the client reads again, unless the broker is frozen."""
        self._is_full = False
        if not self.listener.is_frozen:
            super().resume_writing()

    def connection_lost(self, exc: BaseException | None) -> None:
        """End the calls of this connection."""
        if self.has_begun:
            super().connection_lost(exc)
        self.listener.release(self)
        self.closed.set()

    def shut_down(self) -> None:
        """Cancel the calls of this connection and begin to close it."""
        if self.has_begun:
            self.processor.close("Connection closed by the broker")
        else:
            self.transport.abort()

    def abort(self) -> None:
        """Reset the connection: the client sees an error and not an end."""
        raw = self.transport.get_extra_info("socket")
        if raw is not None:
            with suppress(OSError):  # it may be closed already
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()

    def go_away(self, error_code: int, last_call: int | None) -> None:
        """Send a GOAWAY and keep serving the calls before it.

        Args:
            error_code: HTTP/2 error code; 0: no error.
            last_call: number of the last HTTP/2 stream that is served; None: of the latest.
        """
        if self.transport.is_closing() or not self.has_begun:
            return
        self.connection.flush()
        latest = self.connection._connection.highest_inbound_stream_id  # noqa: SLF001 - no public way
        last = latest if last_call is None else last_call
        self._last_call = last
        # h2 would treat the connection as closed if it wrote the frame itself.
        self.transport.write(_GO_AWAY_HEADER + struct.pack(">II", last, error_code))


class _Loop:
    """The event loop for the handlers of grpclib, which only create tasks in it."""

    def create_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Create the task of a call, which begins once grpclib has noted it."""
        return asyncio.get_running_loop().create_task(begun_later(work))


class Listener(Server):
    """A listening port and its connections."""

    def __init__(
        self,
        service: LiftbridgeService,
        faults: FaultInjector,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Serve `service` once `start` is called; belongs to the running event loop.

        Args:
            service: answers the calls.
            faults: may refuse connections.
            tls: accept TLS connections only; None: plain ones.
        """
        config = Configuration(http2_connection_window_size=_WINDOW)
        super().__init__([service], codec=MessageCodec(), config=config)
        procedures = service.__mapping__()
        self._mapping = procedures  # grpclib made a plain copy
        self._open_calls = procedures.open_calls
        self.faults = faults
        self.is_frozen = False
        self.connections: set[ServerConnection] = set()
        self._tls = tls
        self._handshaking: set[TLSConnection] = set()
        """Connections whose TLS handshake is not complete."""

    async def bind(self, host: str, port: int) -> int:
        """Bind an address without accepting connections, and return the port.

        Args:
            host: a name or an address.
            port: the port; 0: a free one.

        Raises:
            OSError: the address cannot be listened on.
        """
        loop = asyncio.get_running_loop()
        # One address: "localhost" with port 0 would give several, each with a port of its own.
        found = await loop.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP
        )
        address = found[0][4]
        self._server = server = await loop.create_server(
            self._protocol_factory,
            str(address[0]),
            port,
            backlog=_BACKLOG,
            start_serving=False,
        )
        self._server_closed_fut = loop.create_future()
        bound = server.sockets
        return int(bound[0].getsockname()[1]) if bound else port

    async def serve(self) -> None:
        """Accept connections at the bound address."""
        assert self._server is not None  # noqa: S101 - bound before
        await self._server.start_serving()

    def _protocol_factory(self) -> H2Protocol:
        if self._tls is None:
            return self._connection()
        # The event loop accepts any protocol.
        return cast(
            "H2Protocol",
            TLSConnection(
                self._tls,
                self._connection,
                on_begin=self._handshake_begins,
                on_end=self._handshaking.discard,
            ),
        )

    def _handshake_begins(self, connection: TLSConnection) -> None:
        self._handshaking.add(connection)
        if self.is_frozen:
            connection.pause_reading()

    def _connection(self) -> ServerConnection:
        plain = super()._protocol_factory()
        cast("Handler", plain.handler).loop = cast("asyncio.AbstractEventLoop", _Loop())
        connection = ServerConnection(plain.handler, plain.config, plain.h2_config)
        connection.listener = self
        return connection

    def release(self, connection: ServerConnection) -> None:
        """Release a closed connection, with all data that its calls had not read."""
        self.connections.discard(connection)
        handler = cast("Handler", connection.handler)
        ending = set(handler._cancelled)  # noqa: SLF001 - no public way

        def ended(task: asyncio.Task[None]) -> None:
            ending.discard(task)
            if not ending:  # grpclib would keep it until others arrive
                self._handlers.discard(handler)

        if not ending:
            self._handlers.discard(handler)
        for task in tuple(ending):
            task.add_done_callback(ended)

    def freeze(self) -> None:
        """Neither read from nor write to any connection, present or future."""
        self.is_frozen = True
        for connection in self.connections:
            connection.freeze()
        for handshaking in self._handshaking:
            handshaking.pause_reading()

    def thaw(self) -> None:
        """Undo `freeze`."""
        self.is_frozen = False
        for connection in tuple(self.connections):
            connection.thaw()
        for handshaking in self._handshaking:
            handshaking.resume_reading()

    def carrying(self, rpc: str | None) -> Sequence[ServerConnection]:
        """Return the connections with an open call of a procedure; None: all connections."""
        if rpc is None:
            return tuple(self.connections)
        carriers = {call.connection for call in self._open_calls if call.name == rpc}
        return tuple(
            one for one in self.connections if one.has_begun and one.connection in carriers
        )

    async def close_connections(self, connections: Sequence[ServerConnection]) -> None:
        """Cancel the calls of some connections and close them, within a second.

        Cancelling this leaves connections closing in the background.
        """
        for connection in connections:
            connection.shut_down()
        try:
            async with asyncio.timeout(_FLUSH_TIMEOUT):
                for connection in connections:
                    await connection.closed.wait()
        except TimeoutError:
            for connection in connections:
                connection.transport.abort()

    async def reset_connections(self, connections: Sequence[ServerConnection]) -> None:
        """Reset some connections; return once they are closed."""
        for connection in connections:
            connection.abort()
        for connection in connections:
            await connection.closed.wait()

    async def shut_down(self) -> None:
        """Stop listening, cancel all calls and close all connections, within a second.

        Cancelling this leaves connections closing in the background.
        """
        await self._stop_accepting()
        self.close()
        for handshaking in tuple(self._handshaking):
            handshaking.socket.abort()
        await self.close_connections(tuple(self.connections))
        await self.wait_closed()

    async def _stop_accepting(self) -> None:
        """Wait for accepted connections: asyncio would leave them open for ever otherwise."""
        loop = asyncio.get_running_loop()
        for listening in getattr(self._server, "sockets", ()):
            with suppress(NotImplementedError, RuntimeError):  # not on every event loop
                loop.remove_reader(listening.fileno())
        for _ in range(2):  # the transports are made, then the connections
            await asyncio.sleep(0)
