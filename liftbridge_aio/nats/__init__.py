"""Publishing straight over NATS, past the Liftbridge API, and what is needed around it.

    async with NatsPublisher("nats://127.0.0.1:4222") as publisher:
        ack = await publisher.publish("orders", b"3 rolls")

The only package that imports nats-py. The guide (`docs/nats.md`) says when to use it and when not.

- `errors`: Errors that only publishing over NATS has.
- `publisher`: Publishing straight over NATS: `NatsPublisher`, which sends envelopes and takes acks
  in.
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


def __dir__() -> list[str]:
    return __all__
