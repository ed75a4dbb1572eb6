"""Plays a NATS Streaming server on a real NATS server: silent, refusing or answering, as told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import nats
from nats.aio.client import Client as NatsClient
from nats.aio.msg import Msg

from liftbridge_aio.wire import stan
from support.nats_streams import taken

SUBJECTS: Final = {
    "pub": "_STAN.pub.{}.>",
    "sub": "_STAN.sub.{}",
    "unsub": "_STAN.unsub.{}",
    "close": "_STAN.close.{}",
    "sub_close": "_STAN.subclose.{}",
    "pings": "_STAN.discover.{}.pings",
}
REQUESTS: Final[dict[str, type[Any]]] = {
    "connect": stan.ConnectRequest,
    "pub": stan.PubMsg,
    "sub": stan.SubscriptionRequest,
    "unsub": stan.UnsubscribeRequest,
    "close": stan.CloseRequest,
    "sub_close": stan.UnsubscribeRequest,
    "pings": stan.Ping,
    "ack": stan.Ack,
}

GARBAGE: Final = b"\x12\xff\xff"


@dataclass(slots=True)
class ScriptedStan:
    """A streaming server by name only.

    Attributes:
        connection: To NATS.
        cluster: Its id.
        silent: What it does not answer, of the keys of `REQUESTS`.
        errors: What it answers with an error, and which.
        rotten: What it answers with bytes that are no answer.
        without: Fields that the answer to a connect leaves out.
        requests: What came, in order: the key and the request.
    """

    connection: NatsClient
    cluster: str
    silent: set[str] = field(default_factory=set)
    errors: dict[str, str] = field(default_factory=dict)
    rotten: set[str] = field(default_factory=set)
    without: set[str] = field(default_factory=set)
    requests: list[tuple[str, Any]] = field(default_factory=list)
    replies: list[str] = field(default_factory=list)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)

    async def listen(self) -> None:
        """Begin, and wait until the NATS server knows."""
        for key, subject in (("connect", "_STAN.discover.{}"), *SUBJECTS.items()):
            await self._listen(key, subject.format(self.cluster))
        await self._listen("ack", f"_STAN.acks-of.{self.cluster}")
        await taken(self.connection)

    async def _listen(self, key: str, subject: str) -> None:
        async def receive(message: Msg) -> None:
            await self._receive(key, message)

        await self.connection.subscribe(subject, cb=receive)

    async def _receive(self, key: str, message: Msg) -> None:
        request = REQUESTS[key].parse(message.data)
        self.requests.append((key, request))
        self.replies.append(message.reply)
        self.arrived.set()
        if message.reply and key not in self.silent:
            answer = GARBAGE if key in self.rotten else self.answer(key, request)
            await self.connection.publish(message.reply, answer)

    def answer(self, key: str, request: Any) -> bytes:
        """What the request is answered with."""
        error = self.errors.get(key, "")
        if key == "connect":
            prefixes: dict[str, Any] = {
                name: SUBJECTS[subject].format(self.cluster)
                for name, subject in (
                    ("sub_requests", "sub"),
                    ("unsub_requests", "unsub"),
                    ("close_requests", "close"),
                    ("sub_close_requests", "sub_close"),
                    ("ping_requests", "pings"),
                )
                if name not in self.without
            }
            return bytes(
                stan.ConnectResponse(
                    pub_prefix=f"_STAN.pub.{self.cluster}", protocol=1, error=error, **prefixes
                )
            )
        if key == "pub":
            return bytes(stan.PubAck(guid=request.guid, error=error))
        if key == "pings":
            return bytes(stan.PingResponse(error=error))
        if key == "close":
            return bytes(stan.CloseResponse(error=error))
        ack_inbox = f"_STAN.acks-of.{self.cluster}"
        return bytes(stan.SubscriptionResponse(ack_inbox="" if error else ack_inbox, error=error))

    def of(self, key: str) -> list[Any]:
        """The requests of one kind."""
        return [request for each, request in self.requests if each == key]

    async def has(self, key: str, count: int = 1) -> list[Any]:
        """Wait until so many requests of a kind have come, and return them."""
        async with asyncio.timeout(10):
            while len(self.of(key)) < count:
                self.arrived.clear()
                await self.arrived.wait()
        return self.of(key)

    async def send(self, subject: str, payload: bytes, reply: str = "") -> None:
        """Send something, and wait until the NATS server has it."""
        await self.connection.publish(subject, payload, reply)
        await taken(self.connection)


@asynccontextmanager
async def scripted_stan(url: str, cluster: str, **fields: Any) -> AsyncIterator[ScriptedStan]:
    """A scripted server on the NATS server at an address."""
    connection = await nats.connect(url)
    try:
        server = ScriptedStan(connection, cluster, **fields)
        await server.listen()
        yield server
    finally:
        await connection.close()
