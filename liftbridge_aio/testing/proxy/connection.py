"""One connection through a fault proxy: two ends, and a pipe in each direction."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final, Protocol, cast

from .damage import Damager, Flips
from .delay_line import Conditions, DelayLine
from .faults import Direction, FaultKind

_LINGER_ZERO: Final = struct.pack("ii", 1, 0)  # closing sends RST and drops unsent bytes

Report = Callable[[FaultKind, int, str], None]
"""A callback for faults of a pipe: the kind, the byte position and a text."""


class Watcher(Protocol):
    """The interface of the owner of the connections."""

    def connection_opened(self, connection: ProxiedConnection) -> asyncio.Task[None] | None:
        """Start the task that connects to the target; None if the proxy is closing."""
        ...

    def connection_closed(self, connection: ProxiedConnection) -> None:
        """Forget a connection whose two ends are closed."""
        ...


class _Source(Enum):
    """The state of the peer that sends into a pipe."""

    SENDING = "sending"
    ENDED = "ended"
    BROKEN = "broken"


class Pipe:
    """One direction of a connection: bytes received at its source are written to its sink.

    It reads only while its buffer has room, so a sink that does not read pauses the source.
    """

    def __init__(
        self, conditions: Conditions, line: DelayLine, damager: Damager, report: Report
    ) -> None:
        """Create a pipe whose ends are not connected yet."""
        self.conditions = conditions
        self.damager = damager
        self.line = line
        self.forwarded = 0
        """Bytes written to the sink."""
        self.swallowed = 0
        """Bytes discarded."""
        self.lost = False
        """True if bytes were discarded, so that nothing after them may be forwarded."""
        self.source: End
        self.sink: End
        self._report = report
        self._state = _Source.SENDING
        self._end_passed_on = False
        self._timer: asyncio.TimerHandle | None = None

    @property
    def finished(self) -> bool:
        """True if its source has ended and the end was forwarded."""
        return self._end_passed_on

    # --- from the source ---

    def received(self, data: bytes) -> None:
        """Buffer bytes received from the source."""
        if self._swallows():
            self._swallow(len(data))
        else:
            self.line.push(data, asyncio.get_running_loop().time())
        self.update()

    def source_ended(self) -> None:
        """Handle the end of the stream from the source."""
        self._state = _Source.ENDED
        if self._swallows():
            self._swallow(0)
            self.source.abort()  # it is gone, but the sink must not notice
        self.update()

    def source_broke(self) -> None:
        """Handle a reset by the source."""
        self._state = _Source.BROKEN
        if self._swallows():
            self._swallow(0)
        self.update()

    def _swallows(self) -> bool:
        return self.lost or self.conditions.swallowing

    def _swallow(self, size: int) -> None:
        if not self.lost:
            self.lost = True
            self._report(FaultKind.SWALLOW, self.forwarded, "and all that follows")
        self.swallowed += size

    # --- to the sink ---

    def update(self) -> None:
        """Forward the bytes that are due, and read from the source only while there is room."""
        if self.conditions.swallowing and self.line.size:
            self._swallow(self.line.clear())
        self._set_timer(None)
        if not (self.conditions.frozen or self._swallows()):
            self._forward()
        self.keep_reading()

    def keep_reading(self) -> None:
        """Resume or pause reading from the source, depending on the room in the buffer."""
        transport = self.source.transport
        if transport is None or transport.is_closing() or self._state is not _Source.SENDING:
            return
        room = not (self.conditions.frozen or self.line.full) and self.sink.transport is not None
        wanted = room or self._swallows()
        if wanted and not transport.is_reading():
            transport.resume_reading()
        elif not wanted and transport.is_reading():
            transport.pause_reading()

    def _forward(self) -> None:
        transport = self.sink.transport
        if transport is None or transport.is_closing():
            return
        if self._state is _Source.BROKEN:
            self.sink.reset()
            return
        now = asyncio.get_running_loop().time()
        while self.sink.writable and (data := self.line.pop(now)):
            if not self._write(transport, data):
                return
        if self.line.size and self.sink.writable:
            self._set_timer(self.line.ready_at(now))
        elif not self.line.size and self._state is _Source.ENDED and not self._end_passed_on:
            self._end_passed_on = True
            try:
                transport.write_eof()
            except OSError:  # the peer has reset it, which the event loop does not know yet
                self.source.reset()
                self.sink.reset()
            else:
                self.sink.close_if_finished()

    def _write(self, transport: asyncio.Transport, data: bytes) -> bool:
        """Write the bytes, damaged as ordered; return False if the stream ends with them."""
        damaged = self.damager.feed(data)
        self.forwarded += len(damaged.data)
        for mark in damaged.marks:
            kind = FaultKind.FLIP if isinstance(mark.order, Flips) else FaultKind.TRUNCATE
            self._report(kind, mark.position, mark.detail)
        if damaged.data:
            transport.write(damaged.data)
        if damaged.truncation is None:
            return True
        self.line.clear()
        if damaged.truncation.reset:
            self.source.reset()
            self.sink.reset()
        else:
            self.source.abort()
            transport.close()  # bytes already written are still sent
        return False

    def _set_timer(self, when: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if when is not None:
            self._timer = asyncio.get_running_loop().call_at(when, self.update)

    def stop(self) -> None:
        """Stop forwarding because the connection is closed."""
        self._set_timer(None)
        self.line.clear()


class End(asyncio.Protocol):
    """The proxy's socket at one end of a connection."""

    def __init__(self, connection: ProxiedConnection, outgoing: Pipe, incoming: Pipe) -> None:
        """Create an end that feeds one pipe and is written to by the other."""
        self._connection = connection
        self._outgoing = outgoing
        self._incoming = incoming
        self.transport: asyncio.Transport | None = None
        self.writable = True
        """True if the peer at this end is reading."""
        self.gone = False
        """True if its socket is closed."""
        outgoing.source = self
        incoming.sink = self

    # --- asyncio.Protocol ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start to forward."""
        self.transport = cast("asyncio.Transport", transport)
        self._connection.end_is_made(self)
        self._outgoing.update()
        self._incoming.update()

    def data_received(self, data: bytes) -> None:
        """Forward the received bytes."""
        self._outgoing.received(data)

    def eof_received(self) -> bool:
        """Keep this end open: the other end may still have bytes for it."""
        self._outgoing.source_ended()
        return True

    def pause_writing(self) -> None:
        """Stop writing to this end, which pauses the other end."""
        self.writable = False

    def resume_writing(self) -> None:
        """Resume writing to this end."""
        self.writable = True
        self._incoming.update()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forward a reset to the other end; a close by the proxy itself has no error."""
        self.gone = True
        if exc is not None:
            self._outgoing.source_broke()
        self._connection.end_is_gone()

    # --- called by the proxy ---

    def close_if_finished(self) -> None:
        """Close both ends if both directions are finished; bytes already written are sent."""
        if self._incoming.finished and self._outgoing.finished:
            for end in (self._incoming.source, self):
                if end.transport is not None:
                    end.transport.close()

    def abort(self) -> None:
        """Close the socket as an exiting process does: FIN, or RST if bytes were left unread."""
        if self.transport is not None:
            self.transport.abort()

    def reset(self) -> None:
        """Close the socket with RST."""
        if self.transport is None or self.gone:
            return
        raw: socket.socket | None = self.transport.get_extra_info("socket")
        if raw is not None and raw.fileno() >= 0:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_ZERO)
        self.transport.abort()


class ProxiedConnection:
    """The connection of one client together with its connection to the target."""

    def __init__(self, number: int, pipes: Mapping[Direction, Pipe], watcher: Watcher) -> None:
        """Create a connection that is not open yet."""
        self.number = number
        self.pipes = pipes
        to_target, to_clients = pipes[Direction.TO_TARGET], pipes[Direction.TO_CLIENTS]
        self.client = End(self, to_target, to_clients)
        self.target = End(self, to_clients, to_target)
        self.gone = asyncio.Event()
        """Set when both ends are closed."""
        self._watcher = watcher
        self._connecting: asyncio.Task[None] | None = None
        self._over = False

    @property
    def lost_bytes(self) -> bool:
        """True if bytes were discarded, so that the connection is unusable."""
        return any(pipe.lost for pipe in self.pipes.values())

    def update(self) -> None:
        """Apply changed conditions."""
        for pipe in self.pipes.values():
            pipe.update()

    def abort(self) -> None:
        """Close both ends immediately, discarding bytes in transit."""
        self._over = True
        self.client.abort()
        self.target.abort()

    def reset(self) -> None:
        """Close both ends with RST, discarding bytes in transit."""
        self._over = True
        self.client.reset()
        self.target.reset()

    async def connect_target(self, host: str, port: int) -> None:
        """Connect to the target. If it is down, the client sees a broken connection."""
        try:
            await asyncio.get_running_loop().create_connection(lambda: self.target, host, port)
        except OSError:
            self.client.abort()

    def end_is_made(self, end: End) -> None:
        """Connect to the target for a new client; drop an end that connected too late."""
        if end is self.client:
            self._connecting = self._watcher.connection_opened(self)
            if self._connecting is None:
                self.abort()
            else:
                self._connecting.add_done_callback(self._connect_ended)
        elif self._over or self.client.gone:
            end.abort()

    def _connect_ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            # The loop closes a socket that was already open; uvloop does so without a callback.
            self.target.gone = True
        self._end_if_both_are_gone()

    def end_is_gone(self) -> None:
        """Stop connecting if the client is gone; set `gone` when both ends are closed."""
        if self.client.gone and self._connecting is not None:
            self._connecting.cancel()
        self._end_if_both_are_gone()

    def _end_if_both_are_gone(self) -> None:
        connecting = self._connecting is not None and not self._connecting.done()
        connected = self.target.transport is not None and not self.target.gone
        if self.gone.is_set() or connecting or connected or not self.client.gone:
            return
        for pipe in self.pipes.values():
            pipe.stop()
        self.gone.set()
        self._watcher.connection_closed(self)
