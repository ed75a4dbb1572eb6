"""Errors of publishing over NATS that publishing over gRPC has not."""

from __future__ import annotations

from typing import Final

from liftbridge_aio.errors import PublishNotSent

HINT_FOR_UNKNOWN: Final = (
    "look for it before you send it again, use expected_offset, or make repeats harmless"
)
"""Advice of `PublishOutcomeUnknown`: the client over NATS sends nothing again."""


class NobodyListens(PublishNotSent):
    """NATS had nobody to give the message to: it is certainly not stored.

    No stream has this subject, or its partition is paused, or has no leader just now. A paused
    partition is woken by a publish over gRPC, or by `Client.resume_stream`; NATS cannot.
    """

    hint = "check the subject, resume the partition, or publish again once it has a leader"
