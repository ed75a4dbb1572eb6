"""Receives the bytes of a connection: DATA of lane streams is taken out, h2 gets the rest."""

from __future__ import annotations

import asyncio
import logging
from asyncio.trsock import TransportSocket
from collections.abc import Callable
from typing import Final, Protocol, cast

from grpclib.client import Handler
from grpclib.config import Configuration
from grpclib.protocol import H2Protocol
from h2.config import H2Configuration
from h2.events import (
    AlternativeServiceAvailable,
    InformationalResponseReceived,
    RemoteSettingsChanged,
    SettingsAcknowledged,
    UnknownFrameReceived,
)
from h2.settings import SettingCodes

from liftbridge_aio.wire.open_streams import count_seldom

from .core.data_lane import DataLane
from .core.lane_stream import LaneStream

logger = logging.getLogger("liftbridge_aio.net")

_TYPE_OFFSET: Final = 3
"""The position of the type in a frame of HTTP/2."""
_SETTINGS_TYPE: Final = 4
_ANY_NUMBER: Final = 2**32 - 1
_MAX_UNREAD_REPLIES: Final = 2**19
"""Bytes of HTTP/2 replies, to pings for example, that a peer may leave unread."""
_IGNORED_EVENTS: Final = (
    AlternativeServiceAvailable,
    InformationalResponseReceived,
    UnknownFrameReceived,
)


class LaneUser(Protocol):
    """The user of a stream of the lane: a call."""

    def arrived(self) -> None:
        """Handle messages in the stream, or its failure."""

    def set_window(self, size: int) -> None:
        """Apply a change of the window that the server was given."""

    def window_acknowledged(self, size: int) -> None:
        """Apply the server's acknowledgement of a changed window."""


class ConnectionHandler(Handler):
    """Receives the end of a connection from grpclib."""

    def __init__(self, on_close: Callable[[], None]) -> None:
        self._on_close = on_close

    def close(self) -> None:
        """Report the end; an exception must not keep grpclib from ending the calls."""
        super().close()
        try:
            self._on_close()
        except Exception:
            logger.exception("the loss of a connection could not be processed")


class BrokerProtocol(H2Protocol):
    """A connection to a broker.

    Recognises other protocols: a server of HTTP/2 begins with a SETTINGS frame.

    Args:
        on_data: called for every read that had data of the lane.
    """

    def __init__(
        self,
        handler: Handler,
        config: Configuration,
        h2_config: H2Configuration,
        *,
        on_data: Callable[[], None],
    ) -> None:
        super().__init__(handler, config, h2_config)
        self.received_or_lost = asyncio.Event()
        """Set once something was received, or the connection is lost."""
        self.lost_by: BaseException | None = None
        """The exception that ended the connection; None if it ended in order."""
        self._head = b""
        self._lane = DataLane(config.http2_connection_window_size)
        self._users: dict[int, LaneUser] = {}
        self._on_data = on_data
        self._for_h2: list[bytes] = []
        self._unread_replies = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Handle the new connection; see `asyncio.Protocol`."""
        super().connection_made(transport)
        self._transport = cast("asyncio.Transport", transport)
        count_seldom(self.connection._connection)  # noqa: SLF001 - pinned by a test
        # RFC 9113 requires that unknown frames (section 5.5) and informational responses (8.1) are
        # ignored; grpclib would break the connection.
        self.processor.processors |= dict.fromkeys(_IGNORED_EVENTS, lambda _: None)

    @property
    def not_http2(self) -> bool:
        """True if the first bytes were not HTTP/2."""
        return len(self._head) == _TYPE_OFFSET + 1 and self._head[_TYPE_OFFSET] != _SETTINGS_TYPE

    @property
    def first_bytes(self) -> bytes:
        """The first bytes that were received, at most four."""
        return self._head

    def data_received(self, data: bytes) -> None:
        """Process received bytes; see `asyncio.Protocol`."""
        if len(self._head) <= _TYPE_OFFSET:
            self._head = (self._head + data)[: _TYPE_OFFSET + 1]
            self.received_or_lost.set()
        if self.not_http2:
            # h2 would read HTTP/1.1 as the header of a frame of 4.7 MB, and wait for the rest.
            self._break_off()
        else:
            self._split(data)
            if self._lane.overlong:
                # h2 would wait for the whole frame, of up to 16 MiB, before it refuses it.
                self._break_off()

    def _break_off(self) -> None:
        """Close the connection, because the peer violates HTTP/2."""
        self.processor.close("Protocol error")
        self._discard_unsent()

    def _discard_unsent(self) -> None:
        """Abort a connection that is closing: its peer may never read what is unsent."""
        if self._transport.get_write_buffer_size():
            self._transport.abort()

    # The lane

    def _split(self, data: bytes) -> None:
        # Without users, too: a read may end in the middle of a frame, and the lane, which has its
        # beginning, must get the rest.
        lane = self._lane
        rest = lane.feed(data)
        touched = lane.touched
        if touched:
            self._feed_h2()
            self._on_data()
            lane.touched = []
            self._announce(touched)
        if rest:
            self._for_h2.append(rest)
            if not touched:
                self._feed_h2()
            elif len(self._for_h2) == 1:
                # The tasks that were just woken go first: h2 takes as long for the PING that comes
                # with a single message as they take for the message.
                asyncio.get_running_loop().call_soon(self._feed_h2)
        self.give_credit()

    def _feed_h2(self) -> None:
        """Pass h2 the bytes that it has not seen yet, and write its replies."""
        reads, self._for_h2 = self._for_h2, []
        before = self._transport.get_write_buffer_size()
        # Read by read: of a read with a violation h2 reports no events at all.
        for data in reads:
            # A receiver may have closed the connection meanwhile, and with it h2.
            if self.connection.is_closing():
                return
            try:
                for event in self.connection.feed(data):
                    if isinstance(event, SettingsAcknowledged):
                        self._note_acknowledged(event)
                    elif isinstance(event, RemoteSettingsChanged):
                        # It may allow more calls; grpclib would wait until one of them ends.
                        self.connection.stream_close_waiter.set()
                    self.processor.process(event)
            except Exception:
                logger.debug("the server violated HTTP/2", exc_info=True)
                self._break_off()
                return
        if not reads:
            return
        if self.connection.is_closing():
            self._discard_unsent()
            return
        self.connection.flush()
        self._count_replies(self._transport.get_write_buffer_size() - before)

    def _count_replies(self, size: int) -> None:
        """Disconnect a peer that provokes replies without end and does not read them.

        Calls stop writing to such a peer; h2 does not.
        """
        if self.connection.write_ready.is_set():
            self._unread_replies = 0
            return
        self._unread_replies += size
        if self._unread_replies > _MAX_UNREAD_REPLIES:
            logger.debug("the server provokes replies and does not read them")
            self._break_off()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Handle the end of the connection; see `asyncio.Protocol`."""
        self.lost_by = exc
        if exc is not None and not self._head:
            # A failed write ends the connection before the server's bytes were read.
            unread = _unread_letters(self._transport)
            self._head = unread if len(unread) > _TYPE_OFFSET else b""
        self._feed_h2()
        super().connection_lost(exc)
        self.received_or_lost.set()
        self._wake_openers()

    def _wake_openers(self) -> None:
        """Fail the calls that still wait to be opened, which grpclib does not end."""
        connection = self.connection
        h2 = connection._connection  # noqa: SLF001 - pinned by a test
        h2.close_connection()
        # If the peer allowed no more calls, h2 would raise that error instead.
        h2.remote_settings.max_concurrent_streams = _ANY_NUMBER
        h2.remote_settings.acknowledge()
        connection.write_ready.set()
        connection.stream_close_waiter.set()

    def _note_acknowledged(self, event: SettingsAcknowledged) -> None:
        change = event.changed_settings.get(SettingCodes.INITIAL_WINDOW_SIZE)
        if change is not None:
            for user in tuple(self._users.values()):
                user.window_acknowledged(change.new_value)

    def _announce(self, touched: list[LaneStream]) -> None:
        for stream in touched:
            user = self._users.get(stream.stream_id)
            if user is not None:
                user.arrived()

    def give_credit(self) -> None:
        """Write the WINDOW_UPDATE frames that are due."""
        credit = self._lane.credit()
        if credit and not self.connection.is_closing():
            self.connection._transport.write(credit)  # noqa: SLF001 - pinned by a test

    def register(
        self, user: LaneUser, stream_id: int, *, window: int, max_message_bytes: int
    ) -> LaneStream:
        """Register a stream that has just been opened: its DATA goes to the lane."""
        self._users[stream_id] = user
        return self._lane.open(stream_id, window=window, max_message_bytes=max_message_bytes)

    def release(self, stream_id: int) -> None:
        """Release a stream; what is still received of it is discarded."""
        if self._users.pop(stream_id, None) is not None:
            self._lane.close(stream_id)
            self.give_credit()

    def set_window(self, size: int) -> None:
        """Apply a change of the window to every stream of the lane."""
        for user in tuple(self._users.values()):
            user.set_window(size)
        self.give_credit()


def _unread_letters(transport: asyncio.Transport) -> bytes:
    """Return unread letters of a lost connection, such as the beginning of HTTP/1.1."""
    socket = transport.get_extra_info("socket")
    # Other event loops may have closed it, and its file descriptor may be in use again.
    is_plain = transport.get_extra_info("sslcontext") is None
    if not is_plain or not isinstance(socket, TransportSocket):
        return b""
    try:
        with socket.dup() as copy:
            unread: bytes = copy.recv(_TYPE_OFFSET + 1)
    except OSError:
        return b""
    return unread if unread.isalpha() else b""
