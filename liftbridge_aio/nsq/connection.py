"""A connection to an nsqd: negotiation, responses in order, heartbeats, messages to their owner."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Callable
from math import inf
from typing import Final, cast

from liftbridge_aio._core.addresses import format_address, parse_address
from liftbridge_aio._runtime.event_loop import bound_to_process, forked
from liftbridge_aio.options import seconds

from .core import compression, negotiation, protocol
from .core.compression import Codec
from .core.negotiation import Granted, Upgrade
from .core.protocol import FrameReader, FrameType, Refusal
from .errors import NotConnected, NsqError, OutcomeUnknown, ProtocolError
from .options import ConnectionOptions

logger = logging.getLogger("liftbridge_aio.nsq")

DEFAULT_PORT: Final = 4150
_SILENT_INTERVALS: Final = 3
"""Heartbeat intervals without anything received, after which a connection is lost."""
_MESSAGE: Final = FrameType.MESSAGE


def full_address(address: str) -> str:
    """Return `host:port` with the default port of nsqd where none is named.

    Raises:
        InvalidRequest: it is no address.
    """
    return format_address(*parse_address(address, DEFAULT_PORT))


def _ignore(*_: object) -> None:
    """Ignore an event that a producer has no use for."""


class NsqConnection(asyncio.Protocol):
    """A connection to an nsqd; commands of one round of the event loop leave in one write.

    State: `_pending` are the responses that are due, in the order of their commands. `error` is set
    once, when the connection ends.

    Args:
        address: `host:port` of nsqd.
        options: of the connection.
        received: called with the data of each message.
        refused: called with each error of FIN, REQ and TOUCH, which have no response.
        lost: called once, when a connection that was open has ended.
    """

    def __init__(
        self,
        address: str,
        options: ConnectionOptions,
        *,
        received: Callable[[NsqConnection, bytes], None] = _ignore,
        refused: Callable[[Refusal], None] = _ignore,
        lost: Callable[[NsqConnection, NsqError], None] = _ignore,
    ) -> None:
        self.address = address
        self.granted = Granted()
        self.error: NsqError | None = None
        self._options = options
        self._received = received
        self._refused = refused
        self._lost = lost
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._frames = FrameReader(options.max_message_bytes)
        self._codec: Codec | None = None
        self._upgrades: deque[Upgrade] | None = None
        """Upgrades to come; None before the answer to IDENTIFY."""
        self._confirmations: list[asyncio.Future[bytes]] = []
        self._is_open = False
        self._out: list[bytes] = []
        self._pending: deque[tuple[asyncio.Future[bytes], float]] = deque()
        self._deadline_timer: asyncio.TimerHandle | None = None
        self._heartbeat_timer: asyncio.TimerHandle | None = None
        self._quiet_intervals = 0
        self._room: asyncio.Future[None] | None = None
        """Set while the transport takes no more."""
        self._gone: asyncio.Future[None] = self._loop.create_future()

    # Opening

    async def open(self, subscribe: bytes = b"") -> None:
        """Connect, negotiate and subscribe. Cancelling closes it.

        Args:
            subscribe: the command SUB of a consumer.

        Raises:
            NotConnected: nsqd cannot be reached, or not in time, or does not offer TLS.
            CommandRefused: it refuses the options or the subscription.
            Unauthorized: it requires a secret, or another one.
            ProtocolError: the server is no nsqd.
        """
        host, port = parse_address(self.address, DEFAULT_PORT)
        timeout = seconds(self._options.connect_timeout)
        try:
            async with asyncio.timeout(timeout):
                transport, _ = await self._loop.create_connection(lambda: self, host, port)
                await self._negotiate(transport, host)
                if subscribe:
                    await self.request(subscribe, timeout)
                if self.error is not None:  # it ended just after the last answer
                    raise self.error
        except (OSError, TimeoutError) as error:
            reason = str(error) or f"no answer within {timeout:g} s"
            text = f"cannot connect to nsqd at {self.address}: {reason}"
            failure = NotConnected(text)
            self.close(failure)
            raise failure from error
        except BaseException:
            self.close()
            raise
        self._is_open = True
        bound_to_process.add(self)
        self._heartbeat_timer = self._loop.call_later(
            seconds(self._options.heartbeat_interval), self._check_heartbeats
        )

    async def _negotiate(self, transport: asyncio.Transport, host: str) -> None:
        options = self._options
        timeout = seconds(options.connect_timeout)
        wanted = negotiation.settings(options, socket.gethostname())
        self._write(protocol.MAGIC)
        await self.request(protocol.identify(wanted), timeout)
        if options.tls is not None:
            if not self.granted.tls:
                raise NotConnected(f"nsqd at {self.address} does not offer TLS")
            secured = await self._loop.start_tls(transport, self, options.tls, server_hostname=host)
            self._transport = cast("asyncio.Transport", secured)
        for confirmation in self._confirmations:
            if (answer := await confirmation) != protocol.OK:
                raise ProtocolError(
                    f"an upgrade of the connection was answered with {answer[:64]!r}"
                )
        if self.granted.auth_required:
            secret = (options.auth_secret or "").encode()
            await self.request(protocol.auth(secret), timeout)

    def _upgrade(self, answer: bytes) -> None:
        """Begin the next upgrade, once the answer to IDENTIFY or the OK of the last one is here.

        What follows such an answer in the same bytes is already compressed.
        """
        if self._upgrades is None:
            self.granted = negotiation.parse_granted(answer)
            self._upgrades = deque(self.granted.upgrades)
            for _ in self._upgrades:
                self._confirmations.append(self._loop.create_future())
                self._expect(self._confirmations[-1], inf)
        elif self._upgrades and self._upgrades[0] is Upgrade.TLS:
            self._upgrades.popleft()
        if self._upgrades and (codec := _CODECS.get(self._upgrades[0])):
            self._upgrades.popleft()
            self._codec = codec(self._options)

    # Commands

    def request(self, command: bytes, timeout: float) -> asyncio.Future[bytes]:
        """Send a command that is answered, and return the future of its response.

        Without a response within `timeout` seconds the connection ends: nsqd answers in order, so
        nothing after it would be answered either. Cancelling the future leaves the command sent.

        Raises:
            NotConnected: the connection has ended.
        """
        self._write(command)
        if not self._pending:
            self._flush()  # a lone command waits for no others
        future: asyncio.Future[bytes] = self._loop.create_future()
        self._expect(future, self._loop.time() + timeout)
        return future

    def send(self, command: bytes) -> None:
        """Send a command that has no response.

        Raises:
            NotConnected: the connection has ended.
        """
        self._write(command)

    @property
    def is_full(self) -> bool:
        """True while the network does not take what was sent; then wait for `room`."""
        return self._room is not None

    async def room(self) -> None:
        """Wait until there is room for more commands. Cancelling abandons the wait."""
        while self._room is not None:
            await asyncio.shield(self._room)

    def _write(self, command: bytes) -> None:
        if self.error is not None:
            raise self.error
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(command)

    def _flush(self) -> None:
        if self._transport is not None and self.error is None and self._out:
            data = b"".join(self._out)
            self._out.clear()
            self._transport.write(data if self._codec is None else self._codec.compress(data))

    def _expect(self, future: asyncio.Future[bytes], deadline: float) -> None:
        self._pending.append((future, deadline))
        if self._deadline_timer is None and deadline < inf:
            self._deadline_timer = self._loop.call_at(deadline, self._check_deadline)

    # The transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport."""
        self._transport = cast("asyncio.Transport", transport)
        if self.error is not None:  # closed while it was connecting
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Take in bytes."""
        self._quiet_intervals = 0
        try:
            if self._codec is not None:
                data = self._codec.decompress(data)
            if self._is_open:
                for kind, content in self._frames.feed(data):
                    self._take(kind, content)
            else:
                self._negotiation_received(data)
        except NsqError as error:
            self.close(error)

    def _negotiation_received(self, data: bytes) -> None:
        """Take frames one by one: after each, the rest may be compressed."""
        while frames := self._frames.feed(data, only_one=True):
            codec = self._codec
            for kind, content in frames:
                self._take(kind, content)
            data = b""
            if self._codec is not codec and self._codec is not None:
                data = self._codec.decompress(self._frames.take_rest())

    def pause_writing(self) -> None:
        """Hold back commands that can wait."""
        self._room = self._loop.create_future()

    def resume_writing(self) -> None:
        """Wake who waits for room."""
        if self._room is not None:
            self._room.set_result(None)
            self._room = None

    def connection_lost(self, exc: Exception | None) -> None:
        """End, because the network or nsqd did."""
        reason = f"broke: {exc}" if exc else "was closed by nsqd"
        self.close(NotConnected(f"the connection to nsqd at {self.address} {reason}"))
        if not self._gone.done():
            self._gone.set_result(None)

    # Frames

    def _take(self, kind: int, content: bytes) -> None:
        if kind == _MESSAGE:
            self._received(self, content)
        elif kind == FrameType.ERROR:
            refusal = protocol.parse_error(content)
            if refusal.is_fatal:
                self._refuse(refusal)
            else:
                self._refused(refusal)
        elif content == protocol.HEARTBEAT:
            self._write(protocol.NOP)
        elif not self._pending:
            raise ProtocolError(f"a response came that nothing was asked for: {content[:64]!r}")
        else:
            if not self._is_open:
                self._upgrade(content)
            future, _ = self._pending.popleft()
            if not future.done():  # it was not cancelled
                future.set_result(content)

    def _refuse(self, refusal: Refusal) -> None:
        """Fail the oldest command; nsqd closes the connection and executes none after it."""
        error = refusal.error(self.address)
        if self._pending:
            future, _ = self._pending.popleft()
            _fail(future, error)
        text = f"nsqd at {self.address} closed the connection, as it refused an earlier command"
        skipped = NotConnected(f"{text} ({refusal.text})")
        while self._pending:
            future, _ = self._pending.popleft()
            _fail(future, skipped)
        raise error

    def _check_deadline(self) -> None:
        self._deadline_timer = None
        if self._pending:
            _, deadline = self._pending[0]
            if deadline <= self._loop.time():
                text = f"nsqd at {self.address} did not respond in time, so it was disconnected"
                self.close(NotConnected(text))
            elif deadline < inf:
                self._deadline_timer = self._loop.call_at(deadline, self._check_deadline)

    def _check_heartbeats(self) -> None:
        self._quiet_intervals += 1
        interval = seconds(self._options.heartbeat_interval)
        if self._quiet_intervals > _SILENT_INTERVALS:
            text = (
                f"nothing came from nsqd at {self.address} for {_SILENT_INTERVALS * interval:g} s"
            )
            self.close(NotConnected(text))
        else:
            self._heartbeat_timer = self._loop.call_later(interval, self._check_heartbeats)

    # The end

    def _abandon(self) -> None:
        """Refuse every command in a forked child, where the socket is the parent's."""
        self.error = NotConnected(forked(f"the connection to nsqd at {self.address}"))
        self._out.clear()

    def close(self, error: NsqError | None = None) -> None:
        """End it: fail what waits for responses, and tell the owner. Idempotent.

        Without an error, what was sent still goes out.
        """
        if self.error is not None:
            return
        if error is None:
            self._flush()
        reason = error or NotConnected(f"the connection to nsqd at {self.address} is closed")
        self.error = reason
        for timer in (self._deadline_timer, self._heartbeat_timer):
            if timer is not None:
                timer.cancel()
        if self._transport is None:
            self._gone.set_result(None)
        elif error is None:
            self._transport.close()
        else:
            self._transport.abort()
        self.resume_writing()
        while self._pending:
            future, _ = self._pending.popleft()
            if self._is_open:
                text = f"no response came to what was sent: {reason.message}"
                unknown = OutcomeUnknown(text)
                unknown.__cause__ = reason
                _fail(future, unknown)
            else:
                _fail(future, reason)
        if self._is_open:
            self._lost(self, reason)

    async def wait_closed(self, timeout: float) -> None:
        """Wait until the transport has ended, and abort it after `timeout` seconds.

        Cancelling aborts it.
        """
        try:
            async with asyncio.timeout(timeout):
                await asyncio.shield(self._gone)
        except TimeoutError:
            pass
        finally:
            if self._transport is not None:
                self._transport.abort()


def _fail(future: asyncio.Future[bytes], error: NsqError) -> None:
    if not future.done():
        future.set_exception(error)
        future.exception()  # nobody may wait for it any more


_CODECS: Final[dict[Upgrade, Callable[[ConnectionOptions], Codec]]] = {
    Upgrade.DEFLATE: lambda options: compression.deflate(options.deflate_level),
    Upgrade.SNAPPY: lambda _: compression.snappy(),
}
