"""Carries frames about leases between the members of a queue, over NATS."""

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
"""The subjects below this one are those of leases."""

_CONNECT: Final = {"reconnect_time_wait": 0.5, "ping_interval": 5, "name": "liftbridge-aio queue"}
_NO_RESPONDERS: Final = "503"
_SUBJECT_BYTES: Final = 300
"""Room for subjects and headers beside the largest frame."""


class LeaseBus:
    """A connection to NATS with a mailbox of its own.

    What cannot be sent now is not kept: whoever sends repeats what matters.

    Args:
        servers: addresses of NATS servers.
        take: called with each frame that arrives.
        bounced: called with the last token of the reply subject of a frame that nobody received.
    """

    def __init__(
        self,
        servers: Sequence[str],
        take: Callable[[Frame], None],
        bounced: Callable[[str], None],
    ) -> None:
        self.mailbox = ""
        """The subject of this member, without its last token."""
        self._link = NatsLink(servers, _CONNECT)
        self._take = take
        self._bounced = bounced
        self._everybody = ""
        self._queue: deque[tuple[str, bytes, str]] = deque()
        self._filled = asyncio.Event()
        self._complained = False

    @property
    def is_up(self) -> bool:
        """True if frames can be sent now."""
        return self._link.state is LinkState.UP

    async def open(self, topic: Sequence[object], timeout: float) -> None:
        """Connect and subscribe. Cancelling leaves nothing behind.

        Args:
            topic: names what the members have in common.
            timeout: seconds.

        Raises:
            ConnectionFailed: no NATS server answered.
            TLSFailed: TLS is asked for, and no server offers it.
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
        """Hand frames to NATS. Cancelling ends it."""
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
        """Return True if NATS takes a frame of this size."""
        return len(data) + _SUBJECT_BYTES <= self._link.connection.max_payload

    def send(self, mailbox: str, frame: Frame | bytes, reply: str = "") -> bool:
        """Send a frame to a member; return False if NATS is away.

        Args:
            mailbox: of the member.
            frame: a frame, or its bytes.
            reply: the last token of the subject of which `bounced` is told if nobody has received
                it; empty to not hear of that.
        """
        return self._send(f"{mailbox}.0", frame, f"{self.mailbox}.{reply}" if reply else "")

    def send_to_all(self, frame: Frame) -> bool:
        """Send a frame to all members; return False if NATS is away."""
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
            level = logging.DEBUG if self._complained else logging.WARNING
            self._complained = True
            logger.log(level, "ignored a message on %s: %s", arrived.subject, error.message)
            return
        self._take(frame)

    async def close(self, timeout: float) -> None:
        """Send what is to be sent, and disconnect. Cancelling takes effect after that."""
        await wait_despite_cancellation(self._hand_over(), timeout / 2)
        await self._link.close(timeout / 2)
