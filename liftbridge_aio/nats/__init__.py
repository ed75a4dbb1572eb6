"""Publishing straight over NATS, past the Liftbridge API, and what is needed around it.

    async with NatsPublisher("nats://127.0.0.1:4222") as publisher:
        ack = await publisher.publish("orders", b"3 rolls")

The only package that imports nats-py. The guide (`docs/nats.md`) says when to use it and when not.

- `deadlines`: Fails what has run out of time, or has no connection any more: one look for all
  messages.
- `errors`: Errors of publishing over NATS that publishing over gRPC has not.
- `in_flight`: The messages whose outcome is open, and what acks, silence and NATS say of them.
- `library`: nats-py as far as this room uses it, or an ImportError that says how to get it.
- `link`: The connection to NATS that a publisher uses: its own, or one that it was given.
- `messages`: Makes messages of what users pass: checked, sized, in an envelope or plain. Nothing
  is sent.
- `options`: How a publisher over NATS behaves: frozen, and checked when it is made.
- `outbox`: Hands messages to NATS, in order, by one task: no user's task ever waits inside nats-
  py.
- `publisher`: Publishing straight over NATS: `NatsPublisher`, what users see of it.
- `session`: State of an open publisher: its window, its tasks and its inbox.
- `transport`: What nats-py connects through: says what answers, and writes nothing without the TLS
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
