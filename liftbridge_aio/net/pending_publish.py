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
    OPEN = "open"
    """The broker knows the partition: messages flow."""


@dataclass(slots=True, eq=False)
class PublishLane:
    """The way of one partition's messages through one session, in order."""

    stream: str
    partition: int
    heads: tuple[bytes, ...]
    """What its plain messages begin with, by ack policy; see `publish_head`."""
    session: PublishSession | None = None
    state: PublishLaneState = PublishLaneState.UNPROVEN
    unsettled: int = 0
    head: PendingPublish | None = None
    """The message that goes alone."""
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
        "ack_by",
        "ack_timeout",
        "correlation_id",
        "expected_offset",
        "frame",
        "lane",
        "policy",
        "quiet",
        "send_by",
        "session",
        "settle_by",
    )

    lane: PublishLane
    correlation_id: str
    frame: bytes
    """The request as it goes out, with the prefix of gRPC; empty once the message is settled."""
    policy: AckPolicy
    ack_timeout: float
    """Seconds from the write."""
    send_by: float
    """Loop time until which it must be written."""
    settle_by: float
    """Loop time until which it must be settled, whatever happens."""
    expected_offset: int | None
    quiet: bool
    """Somebody else reports its failure, if it is the last word."""
    session: PublishSession | None
    """The session over which it was written, if it was."""
    ack_by: float
    """Loop time until which the ack must come; set by the write."""

    @classmethod
    def of(
        cls,
        loop: asyncio.AbstractEventLoop,
        lane: PublishLane,
        correlation_id: str,
        frame: bytes,
        policy: AckPolicy,
        ack_timeout: float,
        send_by: float,
        settle_by: float,
        expected_offset: int | None,
        quiet: bool,
    ) -> PendingPublish:
        """Make one that is not written yet."""
        pending = cls(loop=loop)
        pending.lane = lane
        pending.correlation_id = correlation_id
        pending.frame = frame
        pending.policy = policy
        pending.ack_timeout = ack_timeout
        pending.send_by = send_by
        pending.settle_by = settle_by
        pending.expected_offset = expected_offset
        pending.quiet = quiet
        pending.session = None
        pending.ack_by = 0.0
        return pending
