"""Publishing straight over NATS, past the Liftbridge API, and what is needed around it.

    async with NatsPublisher("nats://127.0.0.1:4222") as publisher:
        ack = await publisher.publish("orders", b"3 rolls")

The only room that imports nats-py. `README.md` beside this file says when to use it and when not.
"""

from liftbridge_aio.wire.envelope import decode_ack, encode_message, is_envelope

from .destinations import partition_subject
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
