"""A channel of NATS Streaming as an end of a bridge."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress
from hashlib import sha256
from typing import Final

from liftbridge_aio import stan
from liftbridge_aio.errors import LiftbridgeError, MessageTooLarge
from liftbridge_aio.options import seconds

from .ends import MAX_BATCH, Copied, Origin, Plan, Position, Record
from .errors import SourceReset
from .systems import Address, System

_ANSWER: Final = 2.0
"""Seconds in which a server delivers the newest message of a channel, if there is one."""
_SILENCE: Final = 15.0
"""Seconds after which a server that is silent is noticed."""
_MIN_PINGS: Final = 2
_OPTIONS: Final = stan.ClientOptions()


def new_client(address: Address, other: Address, patience: float) -> stan.Client:
    """Return a client with an id of the bridge, so that a second one of the kind is refused.

    A session that is lost ends the attempt.

    Args:
        address: the channel.
        other: the other end of the bridge.
        patience: the longest that a call may take.
    """
    cluster, _ = address.names
    name = sha256(f"{address}>{other}".encode()).hexdigest()[:20]
    servers = [f"nats://{server}" for server in address.servers]
    options = stan.ClientOptions(
        recover=False,
        connect_timeout=min(seconds(_OPTIONS.connect_timeout), patience),
        ack_timeout=min(seconds(_OPTIONS.ack_timeout), patience),
        publish_timeout=min(seconds(_OPTIONS.publish_timeout), patience),
        close_timeout=min(seconds(_OPTIONS.close_timeout), patience),
        ping_interval=1,
        ping_max_out=max(int(min(_SILENCE, patience)), _MIN_PINGS),
    )
    return stan.Client(servers, cluster=cluster, client_id=f"bridge-{name}", options=options)


class StanSource:
    """Reads a channel in its order, without a gap that the channel does not have.

    Nothing is kept at the server: the target says how far it was copied.
    """

    # State, changed only by the task of the bridge: `_last` is the sequence of the last message
    # that was handed out, `_gap` what came in place of the one after it, `_end` where to end.

    def __init__(self, plan: Plan) -> None:
        self._address = plan.source
        self._once = plan.once
        self._after = plan.after
        self._client = new_client(plan.source, plan.target, plan.patience)
        self._channel = plan.source.names[1]
        self._subscription: stan.Subscription | None = None
        self._last = 0
        self._end: int | None = None
        self._gap: int | None = None

    async def open(self) -> Origin:
        """Connect."""
        await self._client.connect()
        return Origin(str(self._address), after=self._after)

    async def begin(self, copied: Copied) -> None:
        """Check that it is the channel that was copied, and subscribe after that."""
        known = copied.positions.get(0)
        self._last = (self._after or 0) if known is None else known.number
        newest = await self._newest() if self._once or self._last else 0
        if newest and self._last:
            await self._check(known or Position(self._last), newest)
        if self._once:
            self._end = newest
        await self._subscribe()

    async def _check(self, copied: Position, newest: int) -> None:
        """Refuse a channel that does not have what was copied, as far as it still has messages.

        An empty one may have removed them all.
        """
        sequence, timestamp = copied
        if newest < sequence:
            raise SourceReset(
                f"{self._address} was copied up to sequence {sequence}, and its newest message has"
                f" sequence {newest}"
            )
        found = await self._first(stan.StartAt.sequence(sequence))
        if found is None or found.sequence != sequence or timestamp is None:
            return
        if found.timestamp != timestamp:
            raise SourceReset(
                f"{self._address} has another message of sequence {sequence} than the one that was"
                " copied"
            )

    async def _subscribe(self) -> stan.Subscription:
        old, self._subscription = self._subscription, None
        if old is not None:
            await old.aclose()
        subscription = self._client.subscribe(
            self._channel,
            start=stan.StartAt.sequence(self._last + 1),
            manual_ack=True,
            max_in_flight=2 * MAX_BATCH,
        )
        await subscription.open()
        self._subscription = subscription
        return subscription

    async def next_batch(self) -> list[Record] | None:
        """Return the next messages; None at the end, if there is one."""
        if self._end is not None and self._last >= self._end:
            return None
        subscription = self._subscription or await self._subscribe()
        async with aclosing(subscription.batches(MAX_BATCH)) as batches:
            if self._end is None:
                messages = await anext(batches, None)
            else:
                try:
                    async with asyncio.timeout(_ANSWER):
                        messages = await anext(batches, None)
                except LiftbridgeError:  # some are a TimeoutError as well
                    raise
                except TimeoutError:
                    self._end = await self._newest()  # retention may have removed the last ones
                    return []
        if messages is None:
            raise stan.SessionLost(f"the subscription to {self._address} has ended")
        return await self._in_order(messages)

    async def _in_order(self, messages: list[stan.Message]) -> list[Record]:
        records = []
        for message in messages:
            sequence = message.sequence
            if sequence <= self._last:
                if not message.redelivered:
                    raise SourceReset(
                        f"{self._address} was copied up to sequence {self._last}, and a new message"
                        f" has sequence {sequence}"
                    )
                await message.ack()
                continue
            if sequence > self._last + 1 and self._gap != sequence:
                # Messages were lost on the way, or the channel does not have them any more.
                self._gap = sequence
                await self._subscribe()
                break
            self._gap = None
            self._last = sequence
            records.append(Record(b"%d" % sequence, message.data, message.timestamp, message))
        return records

    async def stored(self, records: list[Record]) -> None:
        """Ack messages, so that the server sends further ones."""
        with suppress(stan.SubscriptionClosed):  # they are of the one before a gap
            for record in records:
                await record.origin.ack()

    async def lag(self) -> int | None:
        """Return the distance to the newest sequence of the channel."""
        return max(await self._newest() - self._last, 0)

    async def _newest(self) -> int:
        """Return the newest sequence of the channel; 0 if it has none."""
        newest = await self._first(stan.StartAt.latest())
        return 0 if newest is None else newest.sequence

    async def _first(self, start: stan.StartAt) -> stan.Message | None:
        """Return the first message from a start; None if the channel has none there."""
        messages = self._client.subscribe(
            self._channel, start=start, manual_ack=True, max_in_flight=1
        )
        async with messages:
            try:
                async with asyncio.timeout(_ANSWER):
                    return await anext(messages)
            except LiftbridgeError:  # some are a TimeoutError as well
                raise
            except TimeoutError:
                return None
            except StopAsyncIteration:
                raise stan.SessionLost(f"the session with {self._address} has ended") from None

    async def aclose(self) -> None:
        """Disconnect; what is not acked is read again by the next one."""
        await self._client.aclose()


class StanTarget:
    """Publishes to a channel, which the first message creates."""

    def __init__(self, plan: Plan) -> None:
        self._refuse = plan.refuse
        self._client = new_client(plan.target, plan.source, plan.patience)
        self._channel = plan.target.names[1]

    async def open(self, origin: Origin) -> Copied:  # noqa: ARG002 - the channel has no headers
        """Connect."""
        await self._client.connect()
        return Copied()

    async def store(self, records: list[Record]) -> int:
        """Publish messages and wait for all acks."""
        publishes = [
            await self._client.publish_async(self._channel, record.value) for record in records
        ]
        outcomes = await asyncio.gather(*publishes, return_exceptions=True)
        for record, outcome in zip(records, outcomes, strict=True):
            if isinstance(outcome, MessageTooLarge):
                self._refuse(record, outcome)
            elif isinstance(outcome, BaseException):
                raise outcome
        return 0

    async def aclose(self) -> None:
        """Disconnect."""
        await self._client.aclose()


STAN: Final = System(
    scheme="stan",
    example="stan://host:4222/cluster/channel",
    identity="stan/{}/{}",
    message="the message of sequence {}",
    source=StanSource,
    target=StanTarget,
    is_numbered=True,
    takes_after=True,
)
