"""A message that is in flight, and the way of the messages to one partition."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from liftbridge_aio._core.absence import Absence
from liftbridge_aio.model import Ack, AckPolicy, Metadata

from .core.partition_queue import PartitionQueue

if TYPE_CHECKING:
    from .session import PublishSession


@dataclass(frozen=True, slots=True, eq=False)
class PublishTerms:
    """Terms that messages may share: ack policy and timeouts."""

    policy: AckPolicy
    ack_timeout: float
    """Seconds from the write to the ack."""
    settle_timeout: float
    """Seconds after the deadline for the write at which it is settled, whatever happens."""
    quiet: bool = False
    """Do not report its failure: whoever publishes it handles that."""

    @property
    def acked(self) -> bool:
        """True if the server acks."""
        return self.policy is not AckPolicy.NONE


@dataclass(slots=True, eq=False)
class PartitionRoute:
    """The way of one partition's messages, and what is known of its log.

    The in-flight table counts `unsettled` down, the queue changes itself, and the dispatcher
    changes everything else.
    """

    stream: str
    partition: int
    plain: tuple[tuple[bytes, PublishTerms], ...]
    """By ack policy: the encoded fields that its messages share (`publish_head`), and the terms of
    messages with the client's timeouts."""
    queue: PartitionQueue[PendingPublish] = field(default_factory=PartitionQueue)
    session: PublishSession | None = None
    """None until the first message."""
    chosen_in: Metadata | None = None
    """The metadata by which the session was chosen."""
    unsettled: int = 0
    """Messages in the in-flight table."""
    absence: Absence | None = None
    """For how long brokers have not known the stream; None if one does."""
    retries: int = 0
    """Times that the probe was sent again."""
    newest_offset: int = -1
    """The highest offset of an ack from this log."""
    newest_at: float = 0.0
    """The loop time at which that ack came."""


class PendingPublish(asyncio.Future[Ack | None]):
    """A message that is in flight, and the future of its ack.

    It is one object and not two because the garbage collector traverses each of those in flight.
    The session changes `session` and `written_at`; the in-flight table clears `frame` and `session`
    when it settles the message.
    """

    __slots__ = (
        "correlation_id",
        "expected_offset",
        "frame",
        "route",
        "send_by",
        "session",
        "terms",
        "written_at",
    )

    route: PartitionRoute
    terms: PublishTerms
    correlation_id: str
    frame: bytes
    """The encoded request with gRPC's prefix; empty once the message is settled."""
    expected_offset: int | None
    send_by: float
    """Loop time until which it must be written."""
    session: PublishSession | None
    """The session that has written it and waits for its ack, if any."""
    written_at: float
    """The loop time at which that session wrote it."""

    @property
    def acked(self) -> bool:
        """True if the server acks it."""
        return self.terms.acked

    @property
    def answer_by(self) -> float:
        """Loop time until which the ack of a written message must come."""
        terms = self.terms
        return min(self.written_at + terms.ack_timeout, self.send_by + terms.settle_timeout)
