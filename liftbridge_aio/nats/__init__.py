"""Publishing straight over NATS, past the Liftbridge API, and what is needed around it.

    async with NatsPublisher("nats://127.0.0.1:4222") as publisher:
        ack = await publisher.publish("orders", b"3 rolls")

The only package that imports nats-py. The guide (`docs/nats.md`) says when to use it and when not.

- `errors`: Errors that only publishing over NATS has.
- `library`: The parts of nats-py used by this package, or an ImportError with the install command.
- `link`: The connection to NATS that a publisher uses: its own, or one that it was given.
- `publisher`: Publishing straight over NATS: `NatsPublisher`, which sends envelopes and takes acks
  in.
- `transport`: Transport of nats-py: recognises foreign servers, and writes nothing before the TLS
  asked for.
- `core/`: Pure parts of publishing over NATS: no event loop, clock, chance or I/O.
"""

from liftbridge_aio.wire.envelope import decode_ack, encode_message, is_envelope

from .core.destinations import partition_subject
from .errors import NobodyListens
from .publisher import NatsPublisher

__all__ = [
    "NatsPublisher",
    "NobodyListens",
    "decode_ack",
    "encode_message",
    "is_envelope",
    "partition_subject",
]
