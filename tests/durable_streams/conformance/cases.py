"""The published cases, by the ids that they are published under (snapshot 82f9963)."""

from __future__ import annotations

from typing import Final

from durable_streams.conformance import (
    consumer_faults,
    consumer_live,
    consumer_offsets,
    consumer_reads,
    idempotent_producer,
    lifecycle,
    producer,
    validation,
)
from durable_streams.conformance.runner import Cases

PUBLISHED: Final = 269
LEFT_OUT: Final = {
    "sse-base64-data-integrity-multiline": "the published runner skips it for all clients",
    "sse-base64-large-payload-4kb": "the published runner skips it for all clients",
    "offset-zero-start": 'offset "0", which the server refuses, is to be read as the start',
    "read-future-offset": "an offset that the server refuses is to be read as the end",
    "sse-base64-empty-payload": "an empty append, which the server refuses, is to be ignored",
}
"""Cases that do not run, and why."""
BESIDE: Final = 35
"""Cases that never reach a client: what servers answer to requests of producers.

The gateway's answers to those are held by the published tests of servers.
"""

FEATURES: Final = {
    "auto",
    "batchItems",
    "batching",
    "dynamicHeaders",
    "longPoll",
    "retryOptions",
    "sse",
    "streaming",
    "strictZeroValidation",
}
"""What an adapter must claim, lest the published runner skip cases."""
TOPICS: Final = (
    consumer_faults,
    consumer_live,
    consumer_offsets,
    consumer_reads,
    idempotent_producer,
    lifecycle,
    producer,
    validation,
)
CASES: Final[Cases] = {name: steps for topic in TOPICS for name, steps in topic.CASES.items()}
