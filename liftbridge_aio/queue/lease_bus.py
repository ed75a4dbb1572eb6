"""Sends and receives frames about leases, over NATS."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Final

from liftbridge_aio._runtime.nats_library import Msg
from liftbridge_aio._runtime.nats_link import LinkState, NatsLink
from liftbridge_aio._runtime.supervisor import wait_despite_cancellation
from liftbridge_aio.errors import MalformedData

from .core.lease_protocol import Frame, decode, encode

logger = logging.getLogger("liftbridge_aio.queue")

SUBJECTS: Final = "liftbridge.leases"
"""The prefix of all subjects of leases."""

_CONNECT: Final = {"reconnect_time_wait": 0.5, "ping_interval": 5, "name": "liftbridge-aio queue"}
_NO_RESPONDERS: Final = "503"
_SUBJECT_BYTES: Final = 300
"""Room for subjects and headers in addition to the largest frame."""


class LeaseBus:
    """A connection to NATS with a mailbox of its own.

    Frames that cannot be sent are lost; senders repeat the important ones.

    Args:
        servers: addresses of NATS servers.
        take: called with each frame that arrives.
        bounced: called with the last token of the reply subject of a frame without receiver.
    """

    def __init__(
        self,
        servers: Sequence[str],
        take: Callable[[Frame], None],
        bounced: Callable[[str], None],
    ) -> None:
        self._link = NatsLink(servers, _CONNECT)
        self._take = take
        self._bounced = bounced
        # State
        self.mailbox = ""
        """The subject of this member without its last token; set by `open`."""
        self._everybody = ""
        """The subject of all members; set by `open`."""
        self._queue: deque[tuple[str, bytes, str]] = deque()
        """Frames to be sent: subject, data, reply subject."""
        self._filled = asyncio.Event()
        """Set while there may be frames in `_queue`."""
        self._warned = False
        """True once an invalid frame was logged as a warning; more are logged at debug level."""

    @property
    def is_up(self) -> bool:
        """True if frames can be sent now."""
        return self._link.state is LinkState.UP

    async def open(self, topic: Sequence[object], timeout: float) -> None:
        """Connect and subscribe.

        Args:
            topic: identifies the group and the log; equal for all members.
            timeout: seconds.
        """
        digest = sha256("\0".join(map(str, topic)).encode()).hexdigest()[:24]
        self._everybody = f"{SUBJECTS}.{digest}.all"
        self.mailbox = f"{SUBJECTS}.{digest}.{secrets.token_hex(8)}"
        await self._link.open(timeout)
        try:
            await self._link.listen(self._everybody, self._receive)
            await self._link.listen(f"{self.mailbox}.*", self._receive)
        except BaseException:
            await self._link.close(timeout / 2)
            raise

    async def run(self) -> None:
        """Pass frames to NATS."""
        while True:
            await self._filled.wait()
            self._filled.clear()
            await self._hand_over()

    async def _hand_over(self) -> None:
        while self._queue:
            subject, data, reply = self._queue.popleft()
            if not self.is_up:
                continue
            try:
                await self._link.connection.publish(subject, data, reply)
            except Exception as error:  # noqa: BLE001 - lost like any frame on the way
                logger.debug("a frame about leases was not sent: %r", error)

    def fits(self, data: bytes) -> bool:
        """Return True if NATS accepts a frame of this size."""
        return len(data) + _SUBJECT_BYTES <= self._link.connection.max_payload

    def send(self, mailbox: str, frame: Frame | bytes, reply: str = "") -> bool:
        """Send a frame to a member; return False if NATS is disconnected.

        Args:
            mailbox: the mailbox of the member.
            frame: a frame, or its bytes.
            reply: passed to `bounced` if the frame has no receiver; empty: no notice.
        """
        return self._send(f"{mailbox}.0", frame, f"{self.mailbox}.{reply}" if reply else "")

    def send_to_all(self, frame: Frame) -> bool:
        """Send a frame to all members; return False if NATS is disconnected."""
        return self._send(self._everybody, frame, "")

    def _send(self, subject: str, frame: Frame | bytes, reply: str) -> bool:
        if not self.is_up:
            return False
        data = frame if isinstance(frame, bytes) else encode(frame)
        self._queue.append((subject, data, reply))
        self._filled.set()
        return True

    async def _receive(self, arrived: Msg) -> None:
        if not arrived.data and (arrived.headers or {}).get("Status") == _NO_RESPONDERS:
            self._bounced(arrived.subject.rpartition(".")[2])
            return
        try:
            frame = decode(arrived.data)
        except MalformedData as error:
            level = logging.DEBUG if self._warned else logging.WARNING
            self._warned = True
            logger.log(level, "ignored a message on %s: %s", arrived.subject, error.message)
            return
        self._take(frame)

    async def close(self, timeout: float) -> None:
        """Send the remaining frames, and disconnect."""
        await wait_despite_cancellation(self._hand_over(), timeout / 2)
        await self._link.close(timeout / 2)
