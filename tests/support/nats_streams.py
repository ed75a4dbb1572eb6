"""A stream as a publisher over NATS sees it: a listener on a subject that acks."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Final

from nats.aio.client import Client as NatsClient
from nats.aio.msg import Msg

from liftbridge_aio.model import Ack, AckError, AckPolicy
from liftbridge_aio.wire.envelope import (
    EnvelopeMessage,
    decode_message,
    encode_ack,
    is_envelope,
)

BOUND: Final = 10.0


async def taken(connection: NatsClient) -> None:
    """Wait until the NATS server has all that was sent; the first PING overtakes some of it."""
    for _ in range(2):
        await connection.flush()


@dataclass(slots=True)
class Stream:
    """Answers as the leader of a partition does, unless it is told to be silent or to refuse."""

    connection: NatsClient
    name: str
    refuse: AckError = AckError.OK
    silent: bool = False
    messages: list[EnvelopeMessage] = field(default_factory=list)
    plain: list[bytes] = field(default_factory=list)
    replies: list[str] = field(default_factory=list)
    raw: list[bytes] = field(default_factory=list)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    _held: list[tuple[str, bytes]] = field(default_factory=list)

    async def listen(self, subject: str) -> None:
        """Begin, and wait until the NATS server knows."""
        await self.connection.subscribe(subject, cb=self.receive)
        await taken(self.connection)

    async def receive(self, message: Msg) -> None:
        self.raw.append(message.data)
        self.replies.append(message.reply)
        if is_envelope(message.data):
            await self._store(decode_message(message.data), message.subject)
        else:
            self.plain.append(message.data)
        self.arrived.set()

    async def _store(self, message: EnvelopeMessage, subject: str) -> None:
        self.messages.append(message)
        refused = self.refuse is not AckError.OK
        if not message.ack_inbox or (message.ack_policy is AckPolicy.NONE and not refused):
            return
        ack = Ack(
            self.name,
            subject,
            subject,
            0 if refused else len(self.messages) - 1,
            message.ack_inbox,
            message.correlation_id,
            message.ack_policy,
            1,
            2,
            self.refuse,
        )
        if self.silent:
            self._held.append((message.ack_inbox, encode_ack(ack)))
        else:
            await self.connection.publish(message.ack_inbox, encode_ack(ack))

    async def speak(self) -> None:
        """Give the acks that were held back, and be silent no more."""
        self.silent = False
        for inbox, ack in self._held:
            await self.connection.publish(inbox, ack)
        self._held.clear()
        await taken(self.connection)

    async def have(self, count: int) -> None:
        """Wait until so many messages have come."""
        async with asyncio.timeout(BOUND):
            while len(self.raw) < count:
                self.arrived.clear()
                await self.arrived.wait()


@dataclass(frozen=True, slots=True)
class Streams:
    """Makes streams."""

    connection: NatsClient

    async def make(
        self, name: str, subject: str, *, refuse: AckError = AckError.OK, silent: bool = False
    ) -> Stream:
        """A stream that listens; its name is that of its acks."""
        stream = Stream(self.connection, name, refuse, silent)
        await stream.listen(subject)
        return stream
