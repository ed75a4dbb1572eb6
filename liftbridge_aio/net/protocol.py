"""What comes from a connection: DATA of streams on the lane is taken out, the rest goes to h2."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, Protocol, cast

from grpclib.client import Handler
from grpclib.config import Configuration
from grpclib.protocol import H2Protocol
from h2.config import H2Configuration
from h2.events import (
    AlternativeServiceAvailable,
    InformationalResponseReceived,
    SettingsAcknowledged,
    UnknownFrameReceived,
)
from h2.settings import SettingCodes

from .data_lane import DataLane
from .lane_stream import LaneStream

logger = logging.getLogger("liftbridge_aio.net")

_TYPE_OFFSET: Final = 3
"""Where a frame of HTTP/2 says what it is."""
_SETTINGS_TYPE: Final = 4
_ANY_NUMBER: Final = 2**32 - 1
_MAX_UNREAD_ANSWERS: Final = 2**19
"""Bytes of answers of HTTP/2, say to pings, that a peer may ask for while it takes nothing in."""
_IGNORED_EVENTS: Final = (
    AlternativeServiceAvailable,
    InformationalResponseReceived,
    UnknownFrameReceived,
)


class LaneUser(Protocol):
    """Who uses a stream of the lane."""

    def arrived(self) -> None:
        """Take note that the stream has messages, or has failed."""

    def set_window(self, size: int) -> None:
        """Take note that the window that the server was given has changed."""

    def window_acknowledged(self, size: int) -> None:
        """Take note that the server knows of a changed window."""


class ConnectionHandler(Handler):
    """Hears from grpclib that a connection is over."""

    def __init__(self, on_close: Callable[[], None]) -> None:
        self._on_close = on_close

    def close(self) -> None:
        """Pass it on."""
        super().close()
        self._on_close()


class BrokerProtocol(H2Protocol):
    """A connection to a broker.

    Recognises servers of something else: those of HTTP/2 begin with a frame of settings.

    Args:
        on_data: called with every read that may hold data of the lane.
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
        self.spoken = asyncio.Event()
        """Set once the server has begun to speak, or the connection is lost."""
        self.lost_by: BaseException | None = None
        """What ended the connection, unless that was an orderly end."""
        self._head = b""
        self._lane = DataLane(config.http2_connection_window_size)
        self._users: dict[int, LaneUser] = {}
        self._on_data = on_data
        self._for_h2: list[bytes] = []
        self._unread_answers = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin; see `asyncio.Protocol`."""
        super().connection_made(transport)
        self._transport = cast("asyncio.Transport", transport)
        # RFC 9113 wants unknown frames (section 5.5) and informational answers (8.1) passed over;
        # grpclib would break the connection.
        self.processor.processors |= dict.fromkeys(_IGNORED_EVENTS, lambda _: None)

    @property
    def heard(self) -> bool:
        """Whether anything came."""
        return bool(self._head)

    @property
    def foreign(self) -> bool:
        """Whether what came first was no HTTP/2."""
        return len(self._head) == _TYPE_OFFSET + 1 and self._head[_TYPE_OFFSET] != _SETTINGS_TYPE

    def data_received(self, data: bytes) -> None:
        """Take in what was read; see `asyncio.Protocol`."""
        if len(self._head) <= _TYPE_OFFSET:
            self._head = (self._head + data)[: _TYPE_OFFSET + 1]
            self.spoken.set()
        if self.foreign:
            # h2 would take HTTP/1.1 for the header of a frame of 4.7 MB, and wait for the rest.
            self._break_off()
        else:
            self._sort(data)
            if self._lane.overlong:
                # h2 would wait for the whole frame, of up to 16 MiB, before it refuses it.
                self._break_off()

    def _break_off(self) -> None:
        """Close the connection, whose other end does not keep to HTTP/2."""
        self.processor.close("Protocol error")
        self._forget_unsent()

    def _forget_unsent(self) -> None:
        """Close at once what is being closed: its peer may never take in what is unsent."""
        if self._transport.get_write_buffer_size():
            self._transport.abort()

    # The lane

    def _sort(self, data: bytes) -> None:
        # Without users, too: a read may end in the middle of a frame, and whoever has its
        # beginning must get the rest.
        lane = self._lane
        rest = lane.feed(data)
        touched = lane.touched
        if touched:
            self._catch_up()
            self._on_data()
            lane.touched = []
            self._announce(touched)
        if rest:
            self._for_h2.append(rest)
            if not touched:
                self._catch_up()
            elif len(self._for_h2) == 1:
                # The tasks that have just been woken go first: h2 takes as long over the PING that
                # comes with a lone message as they over the message.
                asyncio.get_running_loop().call_soon(self._catch_up)
        self.give_credit()

    def _catch_up(self) -> None:
        """Give h2 what it has not seen yet, and write its answers."""
        reads, self._for_h2 = self._for_h2, []
        before = self._transport.get_write_buffer_size()
        # Read by read: of one that breaks the rules h2 tells nothing.
        for data in reads:
            # Whoever was told of messages may have closed the connection, and with it h2.
            if self.connection.is_closing():
                return
            try:
                for event in self.connection.feed(data):
                    if isinstance(event, SettingsAcknowledged):
                        self._note_acknowledged(event)
                    self.processor.process(event)
            except Exception:
                logger.debug("the server broke the rules of HTTP/2", exc_info=True)
                self._break_off()
                return
        if not reads:
            return
        if self.connection.is_closing():
            self._forget_unsent()
            return
        self.connection.flush()
        self._count_answers(self._transport.get_write_buffer_size() - before)

    def _count_answers(self, size: int) -> None:
        """Give up a peer that has frames answered without end, and takes no answers in.

        Calls stop to write to such a peer; h2 does not.
        """
        if self.connection.write_ready.is_set():
            self._unread_answers = 0
            return
        self._unread_answers += size
        if self._unread_answers > _MAX_UNREAD_ANSWERS:
            logger.debug("the server makes us answer, and takes no answers in")
            self._break_off()

    def connection_lost(self, exc: BaseException | None) -> None:
        """End; see `asyncio.Protocol`."""
        self.lost_by = exc
        self._catch_up()
        super().connection_lost(exc)
        self.spoken.set()
        self._wake_openers()

    def _wake_openers(self) -> None:
        """Fail the calls that still wait to be opened, of which grpclib does not know."""
        connection = self.connection
        h2 = connection._connection  # noqa: SLF001 - pinned by a test
        h2.close_connection()
        # Where the peer allowed no more calls, h2 would see that first.
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
        """Write the credit that is due to the server."""
        credit = self._lane.credit()
        if credit and not self.connection.is_closing():
            self.connection._transport.write(credit)  # noqa: SLF001 - pinned by a test

    def register(
        self, user: LaneUser, stream_id: int, *, window: int, max_message_bytes: int
    ) -> LaneStream:
        """Take the DATA of a stream that has just been opened to the lane."""
        self._users[stream_id] = user
        return self._lane.open(stream_id, window=window, max_message_bytes=max_message_bytes)

    def release(self, stream_id: int) -> None:
        """Give a stream up; what still comes of it is dropped."""
        if self._users.pop(stream_id, None) is not None:
            self._lane.close(stream_id)
            self.give_credit()

    def set_window(self, size: int) -> None:
        """Tell the users of the lane that the server was given another window."""
        for user in tuple(self._users.values()):
            user.set_window(size)
        self.give_credit()
