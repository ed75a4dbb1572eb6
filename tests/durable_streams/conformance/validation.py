"""Cases of options that a client must refuse before it sends anything."""

from __future__ import annotations

from functools import partial
from typing import Final

from durable_streams.conformance.runner import Cases
from durable_streams.conformance.steps import validate

retries = partial(validate, "retry-options")
producer = partial(validate, "idempotent-producer", producerId="producer")

CASES: Final[Cases] = {
    "retry-options-valid": [
        retries(maxRetries=3, initialDelayMs=100, maxDelayMs=5000, multiplier=2.0)
    ],
    "retry-options-negative-max-retries": [retries(maxRetries=-1, refused="maxRetries")],
    "retry-options-zero-initial-delay": [retries(initialDelayMs=0, refused="initialDelayMs")],
    "retry-options-negative-initial-delay": [
        retries(initialDelayMs=-100, refused="initialDelayMs")
    ],
    "retry-options-max-less-than-initial": [
        retries(initialDelayMs=1000, maxDelayMs=500, refused="maxDelayMs")
    ],
    "retry-options-multiplier-less-than-one": [retries(multiplier=0.5, refused="multiplier")],
    "producer-valid": [producer(epoch=0, maxBatchBytes=1 << 20)],
    "producer-negative-epoch": [producer(epoch=-1, refused="epoch")],
    "producer-zero-max-batch-bytes": [producer(maxBatchBytes=0, refused="maxBatchBytes")],
    "producer-negative-max-batch-bytes": [producer(maxBatchBytes=-1, refused="maxBatchBytes")],
    "producer-zero-max-batch-items": [producer(maxBatchItems=0, refused="maxBatchItems")],
    "producer-negative-max-batch-items": [producer(maxBatchItems=-1, refused="maxBatchItems")],
}
