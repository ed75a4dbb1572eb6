"""What is written with ack policy NONE, and what proves that the server has taken it."""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import ClassVar, Final

from liftbridge_aio.model import AckPolicy

from .pending_publish import PendingPublish, PublishTerms

_UNACKED_REMEMBERED: Final = 4096
"""How many messages with ack policy NONE are remembered, to name them when an error comes."""


@dataclass(slots=True, eq=False)
class Barrier:
    """A request without a stream, whose refusal proves that all before it was taken."""

    correlation_id: str
    frame: bytes
    passed: asyncio.Future[None]
    unacked_before: int = 0
    """Messages with ack policy NONE that were written before it."""
    terms: ClassVar[PublishTerms] = PublishTerms(AckPolicy.NONE, math.inf, math.inf)
    """It is refused, not acked, so a batch with it is none of acked messages."""


@dataclass(slots=True)
class Unacked:
    """What was written with ack policy NONE since the last proof that the server took it."""

    written: int = 0
    proven: int = 0
    recent: OrderedDict[str, tuple[str, int]] = field(default_factory=OrderedDict)

    @property
    def unproven(self) -> int:
        """Messages without proof."""
        return self.written - self.proven

    def add(self, pending: PendingPublish) -> None:
        """Take note that a message was written."""
        self.written += 1
        self.recent[pending.correlation_id] = (pending.lane.stream, pending.lane.partition)
        if len(self.recent) > _UNACKED_REMEMBERED:
            self.recent.popitem(last=False)
