"""A client for NSQ: a producer and a consumer for asyncio.

    async with nsq.Producer("127.0.0.1:4150") as producer:
        await producer.publish("orders", b"3 rolls")

    async with nsq.Consumer("orders", "billing", nsqd=["127.0.0.1:4150"]) as consumer:
        async for message in consumer:
            await message.finish()

Needs no Liftbridge server. The guide is `docs/nsq.md`.

- `connection`: A connection to an nsqd: negotiation, responses in order, heartbeats, messages to
  their owner.
- `consumer`: `Consumer`: the messages of a channel from all its nsqds, as an async iterator.
- `deliveries`: The messages of a consumer: how many nsqd may push, what is in flight, and their
  answers.
- `discovery`: Finds the nsqds of a topic by nsqlookupd.
- `errors`: The errors of the NSQ client, a tree below `LiftbridgeError`.
- `http`: HTTP clients of nsqd and nsqlookupd; need the extra `nsq`.
- `message`: `Message`: a delivery of nsqd, which is finished or requeued.
- `options`: Options of connections and consumers: frozen, and checked when created.
- `producer`: `Producer`: publishes to one nsqd, and connects again when it was lost.
- `core/`: The protocol of NSQ, negotiation and compression. Pure.
"""

from __future__ import annotations

from .consumer import Consumer
from .deliveries import ConsumerStatistics, NsqdStatistics
from .errors import (
    AlreadyAnswered,
    BadName,
    Closed,
    CommandRefused,
    HttpRefused,
    LookupFailed,
    NotConnected,
    NotInFlight,
    NsqError,
    OutcomeUnknown,
    ProtocolError,
    Unauthorized,
)
from .http import FoundNsqd, LookupdHttp, NsqdHttp
from .message import Message
from .options import ConnectionOptions, ConsumerOptions
from .producer import Producer

__all__ = [
    "AlreadyAnswered",
    "BadName",
    "Closed",
    "CommandRefused",
    "ConnectionOptions",
    "Consumer",
    "ConsumerOptions",
    "ConsumerStatistics",
    "FoundNsqd",
    "HttpRefused",
    "LookupFailed",
    "LookupdHttp",
    "Message",
    "NotConnected",
    "NotInFlight",
    "NsqError",
    "NsqdHttp",
    "NsqdStatistics",
    "OutcomeUnknown",
    "Producer",
    "ProtocolError",
    "Unauthorized",
]


def __dir__() -> list[str]:
    return __all__
