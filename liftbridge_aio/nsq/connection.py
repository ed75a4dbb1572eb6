"""A connection to an nsqd: negotiation, responses in order, heartbeats, frames to their owner."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from liftbridge_aio._core.addresses import parse_address

from .core import protocol
from .core.protocol import DeliveredMessage, Frame, FrameReader, FrameType, Refusal
from .errors import NotConnected, NsqError, ProtocolError

DEFAULT_PORT: Final = 4150
_READ: Final = 65_536
_MAX_RDY: Final = 2500
"""What nsqd grants if it does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Granted:
    """What nsqd has granted at IDENTIFY."""

    max_rdy: int = _MAX_RDY
    version: str = ""
    auth_required: bool = False
    msg_timeout: float | None = None
    """Seconds after which a message that is not answered is delivered again."""


class NsqConnection:
    """A connection to an nsqd. Owned by the producer or consumer whose task runs `read`.

    Args:
        address: `host:port` of nsqd.
        settings: of IDENTIFY; `feature_negotiation` is added.
        received: called with each message.
        refused: called with each error of FIN, REQ and TOUCH.
    """

    def __init__(
        self,
        address: str,
        settings: dict[str, Any],
        received: Callable[[DeliveredMessage], None],
        refused: Callable[[Refusal], None],
        *,
        max_frame_bytes: int,
    ) -> None:
        self.address = address
        self._settings = {**settings, "feature_negotiation": True}
        self._received = received
        self._refused = refused
        self._frames = FrameReader(max_frame_bytes)
        self._pending: deque[asyncio.Future[bytes]] = deque()
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._lost: NsqError | None = None
        self.granted = Granted()

    async def open(self, timeout: float) -> None:
        """Connect and negotiate. Cancelling closes it.

        Raises:
            NotConnected: nsqd cannot be reached, or not in time.
            CommandRefused: it refuses the settings.
            ProtocolError: the server is no nsqd.
        """
        host, port = parse_address(self.address, DEFAULT_PORT)
        try:
            async with asyncio.timeout(timeout):
                self._reader, self._writer = await asyncio.open_connection(host, port)
                self._writer.write(protocol.MAGIC)
                settings = json.dumps(self._settings).encode()
                answered = self.request(protocol.identify(settings))
                while not answered.done():
                    await self._read_once()
                self.granted = _granted(await answered)
        except (OSError, TimeoutError) as error:
            self.close()
            text = f"cannot connect to nsqd at {self.address}: {error or 'no answer in time'}"
            raise NotConnected(text) from error
        except BaseException:
            self.close()
            raise

    def request(self, command: bytes) -> asyncio.Future[bytes]:
        """Send a command that is answered, and return the future of its response.

        Cancelling the future leaves the command sent.

        Raises:
            NotConnected: the connection is closed.
        """
        self.send(command)
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._pending.append(future)
        return future

    def send(self, command: bytes) -> None:
        """Send a command that is not answered.

        Raises:
            NotConnected: the connection is closed.
        """
        if self._writer is None or self._lost is not None:
            raise self._lost or NotConnected(f"not connected to {self.address}")
        self._writer.write(command)

    async def drain(self) -> None:
        """Wait until there is room for more commands. Cancelling abandons the wait."""
        if self._writer is not None:
            await self._writer.drain()

    async def read(self) -> None:
        """Process frames until the connection ends. Cancelling stops it.

        Raises:
            NotConnected: it ended.
            ProtocolError: the server is no nsqd.
        """
        try:
            while True:
                await self._read_once()
        except OSError as error:
            raise NotConnected(f"the connection to {self.address} broke: {error}") from error

    def close(self, error: NsqError | None = None) -> None:
        """Close it and fail what waits for responses. Idempotent."""
        if self._lost is None:
            self._lost = error or NotConnected(f"the connection to {self.address} was closed")
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        while self._pending:
            future = self._pending.popleft()
            if not future.done():
                future.set_exception(self._lost)
                future.exception()  # nobody may wait for it any more

    async def _read_once(self) -> None:
        assert self._reader is not None
        data = await self._reader.read(_READ)
        if not data:
            text = f"nsqd at {self.address} closed the connection"
            raise NotConnected(text)
        for frame in self._frames.feed(data):
            self._take(frame)

    def _take(self, frame: Frame) -> None:
        if frame.type is FrameType.MESSAGE:
            self._received(protocol.parse_message(frame.data))
        elif frame.type is FrameType.ERROR:
            refusal = protocol.parse_error(frame.data)
            if refusal.is_fatal:
                self._answer(refusal.error())
            else:
                self._refused(refusal)
        elif frame.data == protocol.HEARTBEAT:
            self.send(protocol.NOP)
        else:
            self._answer(frame.data)

    def _answer(self, answer: bytes | NsqError) -> None:
        if not self._pending:
            if isinstance(answer, NsqError):
                raise answer
            message = f"a response that nothing was asked for: {answer[:64]!r}"
            raise ProtocolError(message)
        future = self._pending.popleft()
        if future.done():  # it was cancelled
            return
        if isinstance(answer, NsqError):
            future.set_exception(answer)
        else:
            future.set_result(answer)


def _granted(answer: bytes) -> Granted:
    if answer == protocol.OK:  # an nsqd that does not negotiate
        return Granted()
    found = json.loads(answer)
    return Granted(
        max_rdy=found.get("max_rdy_count", _MAX_RDY),
        version=found.get("version", ""),
        auth_required=found.get("auth_required", False),
        msg_timeout=found["msg_timeout"] / 1000 if found.get("msg_timeout") else None,
    )
