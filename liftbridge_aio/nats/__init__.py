"""Publishing straight over NATS, past the Liftbridge API, and what is needed around it.

    async with NatsPublisher("nats://127.0.0.1:4222") as publisher:
        ack = await publisher.publish("orders", b"3 rolls")

The only package that imports nats-py. The guide (`docs/nats.md`) says when to use it and when not.

- `deadlines`: Enforces the deadlines of messages in flight, all of them in one sweep.
- `errors`: Errors of publishing over NATS that publishing over gRPC has not.
- `in_flight`: Messages in flight over NATS, settled by acks, timeouts and errors.
- `library`: nats-py as far as this package uses it, or an ImportError that says how to get it.
- `link`: The connection to NATS that a publisher uses: its own, or one that it was given.
- `messages`: Makes messages of what users pass: checked, sized, in an envelope or plain. Nothing
  is sent.
- `options`: Options of a publisher over NATS: frozen, and checked when created.
- `outbox`: Hands messages to NATS, in order, by one task: no user's task ever waits inside nats-
  py.
- `publisher`: Publishing straight over NATS: `NatsPublisher`, what users see of it.
- `session`: State of an open publisher: its window, its tasks and its inbox.
- `transport`: Transport of nats-py: recognises foreign servers, and writes nothing before the TLS
  asked for.
- `core/`: Pure parts of publishing over NATS: no event loop, clock, chance or I/O.
"""

from liftbridge_aio.wire.envelope import decode_ack, encode_message, is_envelope

from .core.destinations import partition_subject
from .errors import NobodyListens
from .in_flight import NatsPublisherStatistics
from .options import NatsPublisherOptions
from .publisher import NatsPublisher

__all__ = [
    "NatsPublisher",
    "NatsPublisherOptions",
    "NatsPublisherStatistics",
    "NobodyListens",
    "decode_ack",
    "encode_message",
    "is_envelope",
    "partition_subject",
]
