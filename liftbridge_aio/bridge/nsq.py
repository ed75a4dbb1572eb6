"""A topic of NSQ as an end of a bridge."""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing, suppress
from dataclasses import replace
from typing import Final

from liftbridge_aio import nsq
from liftbridge_aio.errors import InvalidRequest, LiftbridgeError
from liftbridge_aio.nsq.connection import NsqConnection
from liftbridge_aio.nsq.core import protocol

from .ends import MAX_BATCH, Copied, Origin, Plan, Record
from .systems import Address, System

logger = logging.getLogger("liftbridge_aio.bridge")

_MARGIN: Final = 1.1
"""Factor by which a channel must be silent for longer than the message timeout."""
_TICK: Final = 1.0
"""Seconds after which a source without messages says so."""
_MAX_COMMAND: Final = 1 << 20
"""Bytes of messages in one command; nsqd takes 5 MiB by default."""
_REFUSALS: Final = frozenset({"E_BAD_MESSAGE", "E_BAD_BODY"})
"""Codes with which nsqd refuses a publish for what it has."""
_HEARTBEAT: Final = 5.0
"""Seconds between heartbeats, of which three may be missing."""
_CONNECT: Final = 5.0
_PUBLISH: Final = 10.0
"""Seconds for a publish."""


class NsqSource:
    """Consumes a channel, of which each message is finished once the target has stored it."""

    # State, changed only by the task of the bridge: `_silent_since` is the loop time of the last
    # message, or since when nobody can send one, `_had_nsqd` is True once an nsqd was connected.

    def __init__(self, plan: Plan) -> None:
        address, patience = plan.source, plan.patience
        topic, channel = address.names
        self._address = address
        self._once = plan.once
        self._silence = plan.message_timeout * _MARGIN
        self._lookupds = [
            f"http://{server}" for server in address.servers if address.system is NSQ_LOOKUP
        ]
        self._consumer = nsq.Consumer(
            topic,
            channel,
            nsqd=() if self._lookupds else address.servers,
            lookupd=self._lookupds,
            max_in_flight=MAX_BATCH,
            options=nsq.ConsumerOptions(
                connect_timeout=min(_CONNECT, patience),
                msg_timeout=plan.message_timeout,
                max_attempts=0,
                max_backoff=0,
                reconnect_wait=1,
                max_reconnect_wait=5,
                lookup_interval=15,
                heartbeat_interval=max(min(_HEARTBEAT, patience / 3), 1.0),
            ),
        )
        self._silent_since = 0.0
        self._had_nsqd = False

    async def open(self) -> Origin:
        """Say what is copied."""
        return Origin(str(self._address))

    async def begin(self, copied: Copied) -> None:  # noqa: ARG002 - nsqd knows what is not finished
        """Connect, and subscribe to the channel, which creates it."""
        await self._consumer.__aenter__()
        self._silent_since = asyncio.get_running_loop().time()
        if self._lookupds and not await self._nsqds():
            logger.warning("nsqlookupd knows no nsqd that has the topic of %s", self._address)

    async def _nsqds(self) -> list[nsq.FoundNsqd]:
        """Ask every nsqlookupd for the nsqds that have the topic."""
        topic, _ = self._address.names
        found = []
        for url in self._lookupds:
            async with nsq.LookupdHttp(url) as lookupd:
                found += await lookupd.lookup(topic)
        return found

    async def next_batch(self) -> list[Record] | None:
        """Return the next messages; None when nothing has come for long enough."""
        loop = asyncio.get_running_loop()
        async with aclosing(self._consumer.batches(MAX_BATCH)) as batches:
            try:
                async with asyncio.timeout(_TICK):
                    messages = await anext(batches)
            except LiftbridgeError:  # some are a TimeoutError as well
                raise
            except TimeoutError:
                if self._consumer.statistics().connections:
                    self._had_nsqd = True
                elif not self._lookupds:
                    raise nsq.NotConnected(f"no nsqd of {self._address} is connected") from None
                elif self._had_nsqd or not self._once or await self._nsqds():
                    self._silent_since = loop.time()  # that nsqd may still have messages
                silent = loop.time() - self._silent_since > self._silence
                return None if self._once and silent else []
        self._silent_since = loop.time()
        self._had_nsqd = True
        return [
            Record(b"%b/%b" % (each.address.encode(), each.id), each.body, each.timestamp, each)
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
        for url in {f"http://{each.http_address}" for each in await self._nsqds()}:
            async with nsq.NsqdHttp(url) as nsqd:
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

    def __init__(self, plan: Plan) -> None:
        self._topic, self._channel = plan.target.names
        [self._server] = plan.target.servers
        self._refuse = plan.refuse
        self._options = nsq.ConnectionOptions(connect_timeout=min(_CONNECT, plan.patience))
        self._producer = nsq.Producer(
            self._server, timeout=min(_PUBLISH, plan.patience), options=self._options
        )

    async def open(self, origin: Origin) -> Copied:  # noqa: ARG002 - a topic has no headers
        """Connect, and create topic and channel, so that the channel gets every message."""
        connection = NsqConnection(self._server, self._options)
        await connection.open(protocol.sub(self._topic, self._channel))
        connection.close()
        await self._producer.__aenter__()
        return Copied()

    async def store(self, records: list[Record]) -> int:
        """Publish messages, many in a command."""
        batch: list[Record] = []
        size = 0
        for record in records:
            if not record.value:
                text = "nsqd takes no empty messages"
                self._refuse(record, InvalidRequest(text))
                continue
            if batch and size + len(record.value) > _MAX_COMMAND:
                await self._publish(batch)
                batch, size = [], 0
            batch.append(record)
            size += len(record.value)
        await self._publish(batch)
        return 0

    async def _publish(self, batch: list[Record]) -> None:
        try:
            await self._producer.publish_many(self._topic, [each.value for each in batch])
        except nsq.CommandRefused as error:
            if error.code not in _REFUSALS:
                raise
            if len(batch) == 1:
                self._refuse(batch[0], error)
                return
            for each in batch:  # nsqd has stored none, and does not tell which one it refuses
                await self._publish([each])

    async def aclose(self) -> None:
        """Disconnect."""
        await self._producer.aclose()


def _check_target(address: Address) -> None:
    if address.system is NSQ_LOOKUP or len(address.servers) > 1:
        raise InvalidRequest(f"messages are published to one nsqd: {NSQ.example}")


NSQ: Final = System(
    scheme="nsq",
    example="nsq://host:4150/topic/channel",
    identity="nsq/{}",
    message="the message {1} of nsqd at {0}",
    source=NsqSource,
    target=NsqTarget,
    check_target=_check_target,
)
NSQ_LOOKUP: Final = replace(
    NSQ, scheme="nsq+lookup", example="nsq+lookup://host:4161/topic/channel"
)
