"""A topic of NSQ as an end of a bridge."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress
from typing import Final

from liftbridge_aio import nsq
from liftbridge_aio.nsq.connection import NsqConnection
from liftbridge_aio.nsq.core import protocol

from .core.addresses import Address, System
from .ends import MAX_BATCH, Copied, Record

_MARGIN: Final = 1.1
"""Factor by which a channel must be silent for longer than the message timeout."""
_TICK: Final = 1.0
"""Seconds after which a source without messages says so."""
_MAX_COMMAND: Final = 1 << 20
"""Bytes of messages in one command; nsqd takes 5 MiB by default."""


class NsqSource:
    """Consumes a channel, of which each message is finished once the target has stored it."""

    def __init__(self, address: Address, message_timeout: float, *, once: bool) -> None:
        topic, channel = address.names
        self._address = address
        self._once = once
        self._silence = message_timeout * _MARGIN
        self._lookupds = [
            f"http://{server}" for server in address.servers if address.system is System.NSQ_LOOKUP
        ]
        self._consumer = nsq.Consumer(
            topic,
            channel,
            nsqd=() if self._lookupds else address.servers,
            lookupd=self._lookupds,
            max_in_flight=MAX_BATCH,
            options=nsq.ConsumerOptions(
                msg_timeout=message_timeout,
                max_attempts=0,
                max_backoff=0,
                reconnect_wait=1,
                max_reconnect_wait=5,
                lookup_interval=15,
                heartbeat_interval=5,
            ),
        )
        self._silent_since = 0.0

    async def open(self, copied: Copied) -> None:  # noqa: ARG002 - nsqd knows what is not finished
        """Connect, and subscribe to the channel, which creates it."""
        await self._consumer.__aenter__()
        self._silent_since = asyncio.get_running_loop().time()

    async def next_batch(self) -> list[Record] | None:
        """Return the next messages; None when nothing has come for long enough."""
        loop = asyncio.get_running_loop()
        async with aclosing(self._consumer.batches(MAX_BATCH)) as batches:
            try:
                async with asyncio.timeout(_TICK):
                    messages = await anext(batches)
            except TimeoutError:
                if not self._consumer.statistics().connections:
                    self._silent_since = loop.time()
                    if not self._lookupds:
                        text = f"no nsqd of {self._address} is connected"
                        raise nsq.NotConnected(text) from None
                silent = loop.time() - self._silent_since > self._silence
                return None if self._once and silent else []
        self._silent_since = loop.time()
        return [
            Record(f"{each.address}/{each.id.decode()}".encode(), each.body, each.timestamp, each)
            for each in messages
        ]

    async def stored(self, records: list[Record]) -> None:
        """Finish messages; nsqd delivers again those whose connection was lost."""
        for record in records:
            with suppress(nsq.NotInFlight):
                await record.origin.finish()

    async def lag(self) -> int | None:
        """Return what waits in the channel, where nsqlookupd tells the nsqds that can be asked."""
        if not self._lookupds:
            return None
        topic, channel = self._address.names
        waiting = 0
        for url in self._lookupds:
            async with nsq.LookupdHttp(url) as lookupd:
                found = await lookupd.lookup(topic)
            for each in found:
                async with nsq.NsqdHttp(f"http://{each.http_address}") as nsqd:
                    stats = await nsqd.stats(topic, channel)
                waiting += sum(
                    one["depth"] + one["in_flight_count"]
                    for described in stats.get("topics") or ()
                    for one in described.get("channels") or ()
                )
        return waiting

    async def aclose(self) -> None:
        """Requeue what is not stored, and disconnect."""
        await self._consumer.aclose()


class NsqTarget:
    """Publishes to a topic, which is created with its channel."""

    def __init__(self, address: Address) -> None:
        self._topic, self._channel = address.names
        [self._server] = address.servers
        self._producer = nsq.Producer(self._server)

    async def open(self) -> Copied:
        """Connect, and create topic and channel, so that the channel gets every message."""
        connection = NsqConnection(self._server, nsq.ConnectionOptions())
        await connection.open(protocol.sub(self._topic, self._channel))
        connection.close()
        await self._producer.__aenter__()
        return Copied()

    async def store(self, records: list[Record]) -> int:
        """Publish messages, many in a command."""
        bodies: list[bytes] = []
        size = 0
        for record in records:
            if bodies and size + len(record.value) > _MAX_COMMAND:
                await self._producer.publish_many(self._topic, bodies)
                bodies, size = [], 0
            bodies.append(record.value)
            size += len(record.value)
        await self._producer.publish_many(self._topic, bodies)
        return 0

    async def aclose(self) -> None:
        """Disconnect."""
        await self._producer.aclose()
