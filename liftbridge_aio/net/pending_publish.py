"""A message between `publish` and its outcome, and the partition that it goes to."""

from __future__ import annotations

import asyncio
import enum
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from liftbridge_aio.model import Ack, AckPolicy, Metadata

if TYPE_CHECKING:
    from .publish_session import PublishSession


class PublishLaneState(enum.Enum):
    """What is known of a partition on its session."""

    UNPROVEN = "unproven"
    """No answer yet; the next message goes alone."""
    PROVING = "proving"
    """One message is on its way alone, the others wait."""
    ASKING = "asking"
    """As PROVING; the ack is late, so the broker is asked whether it has taken the message in."""
    OPEN = "open"
    """The broker knows the partition: messages flow."""


@dataclass(frozen=True, slots=True, eq=False)
class PublishTerms:
    """What one message may share with others: how it is acked, and how long it may take."""

    policy: AckPolicy
    ack_timeout: float
    """Seconds from the write to the ack."""
    settle_timeout: float
    """Seconds from the latest write to the latest end, whatever happens."""
    expected_offset: int | None = None
    quiet: bool = False
    """Somebody else reports its failure, if it is the last word."""

    @property
    def acked(self) -> bool:
        """Whether the server answers."""
        return self.policy is not AckPolicy.NONE


@dataclass(slots=True, eq=False)
class PublishLane:
    """The way of one partition's messages through one session, in order."""

    stream: str
    partition: int
    plain: tuple[tuple[bytes, PublishTerms], ...]
    """By ack policy, what its plain messages begin with (`publish_head`), and their terms."""
    session: PublishSession | None = None
    state: PublishLaneState = PublishLaneState.UNPROVEN
    unsettled: int = 0
    head: PendingPublish | None = None
    """The message that goes alone."""
    unanswered: set[PendingPublish] = field(default_factory=set)
    """Those before it that the session's broker took in and has not answered."""
    returned: deque[PendingPublish] = field(default_factory=deque)
    """Handed to a session that broke before they were written; they go before the queue."""
    queue: deque[PendingPublish] = field(default_factory=deque)
    unknown_since: float | None = None
    """Since when brokers say that there is no such stream, in loop time."""
    tries: int = 0
    chosen_in: Metadata | None = None
    """What the cluster looked like when the session was chosen."""


class PendingPublish(asyncio.Future[Ack | None]):
    """A message between `publish` and its outcome, and the future of that outcome.

    It is one object and not two because the garbage collector looks at each of those in flight.
    """

    __slots__ = (
        "correlation_id",
        "frame",
        "lane",
        "send_by",
        "session",
        "terms",
        "written_at",
    )

    lane: PublishLane
    terms: PublishTerms
    correlation_id: str
    frame: bytes
    """The request as it goes out, with the prefix of gRPC; empty once the message is settled."""
    send_by: float
    """Loop time until which it must be written."""
    session: PublishSession | None
    """The session over which it was written, if it was."""
    written_at: float
    """The loop time of that, where there is a session."""

    @classmethod
    def of(
        cls,
        loop: asyncio.AbstractEventLoop,
        lane: PublishLane,
        terms: PublishTerms,
        correlation_id: str,
        frame: bytes,
        send_by: float,
    ) -> PendingPublish:
        """Make one that is not written yet."""
        pending = cls(loop=loop)
        pending.lane = lane
        pending.terms = terms
        pending.correlation_id = correlation_id
        pending.frame = frame
        pending.send_by = send_by
        pending.session = None
        return pending

    @property
    def answer_by(self) -> float:
        """Loop time until which the answer must come to what is written."""
        terms = self.terms
        return min(self.written_at + terms.ack_timeout, self.send_by + terms.settle_timeout)
