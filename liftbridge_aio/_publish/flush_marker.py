"""Messages with ack policy NONE, and the marker that shows that the server has accepted them."""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import ClassVar, Final

from liftbridge_aio.model import AckPolicy

from .message import PendingPublish, PublishTerms

_MAX_REMEMBERED: Final = 4096
"""Messages with ack policy NONE that are remembered, to name them when an error comes."""


@dataclass(slots=True, eq=False)
class FlushMarker:
    """A request without a stream: its refusal shows that the server has accepted all before it."""

    correlation_id: str
    frame: bytes
    answered: asyncio.Future[None]
    unacked_before: int = 0
    """Messages with ack policy NONE that were written before it."""
    terms: ClassVar[PublishTerms] = PublishTerms(AckPolicy.NONE, math.inf, math.inf)
    """It is refused, not acked, so a batch with it is not one of acked messages."""


@dataclass(slots=True)
class UnackedMessages:
    """Messages that were written with ack policy NONE on one connection."""

    written: int = 0
    confirmed: int = 0
    """Those before the last flush marker that was answered."""
    recent: OrderedDict[str, tuple[str, int]] = field(default_factory=OrderedDict)
    """Stream and partition of the latest, by correlation id."""

    @property
    def unconfirmed(self) -> int:
        """Messages that the server has not been seen to accept."""
        return self.written - self.confirmed

    def add(self, pending: PendingPublish) -> None:
        """Add a message that was written."""
        self.written += 1
        self.recent[pending.correlation_id] = (pending.route.stream, pending.route.partition)
        if len(self.recent) > _MAX_REMEMBERED:
            self.recent.popitem(last=False)
