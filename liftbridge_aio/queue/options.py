"""`QueueOptions`: how a queue delivers messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from liftbridge_aio._core.arguments import (
    INT64_MAX,
    check_callable,
    check_flags,
    check_number,
    check_type,
    check_whole_number,
    names,
)
from liftbridge_aio.errors import InvalidRequest
from liftbridge_aio.groups.core.group_plan import OnReset, check_on_reset
from liftbridge_aio.model import StartAt
from liftbridge_aio.options import Duration, timer_seconds
from liftbridge_aio.transactions.reading import ReadCommitted

from .core.ack_window import Order
from .policies import (
    DeadLetter,
    Exponential,
    OnGivingUp,
    Probing,
    RetryDelay,
    RetryStreams,
    checked_retry,
)

_EARLIEST: Final = StartAt.earliest()


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueOptions:
    """How a queue delivers its messages; the same value serves many queues and processes.

    Give all members of a group the same options: the owner of a partition applies its own.
    """

    # Reading
    start: StartAt = _EARLIEST
    """Where to begin partitions without stored acks. The default is the oldest message of the log,
    so no job is lost that was published before the first worker came."""
    on_reset: OnReset = "error"
    """The reaction if the stream was recreated since the acks were stored: "error" raises
    `StreamReset`; "start" logs a warning and begins at `start`."""
    committed: bool | ReadCommitted = False
    """As for `Client.subscribe`. If True, the messages of a transaction are delivered
    at the position of the ack that commits it."""
    unpause: bool = False
    """Resume paused partitions, at the beginning and whenever they are paused later. False: they
    are in `Queue.blocked` until somebody publishes to them."""
    sample: float = 1.0
    """The fraction of the messages to deliver, chosen at random; the others count as acked."""

    # Deliveries
    max_in_flight: int = 1024
    """Deliveries that may be unanswered, divided among the partitions. With fewer than one per
    partition, the partitions take turns."""
    ack_wait: Duration = 30.0
    """Seconds for an answer, after which a message is redelivered."""
    order: Order = Order.NONE
    """Which messages wait for others."""
    max_window: int = 100_000
    """Offsets between the first unsettled message of a partition and the last one that was read. At
    that distance reading stops until the first one is settled."""
    nats: str | Sequence[str] | None = None
    """Addresses of NATS servers, over which all members share all partitions: the owners of
    partitions lease messages to idle members. Every member that is to share must set it. Deliveries
    have no `transaction()` then. None: the owner of a partition handles all of its messages."""

    # Failures
    max_attempts: int = 5
    """Attempts after which a message is given up; 0: no limit."""
    retry: RetryDelay = Exponential()  # noqa: RUF009 - immutable
    """Returns the seconds before the next attempt, given the number of the failed attempt, from 1,
    and its error. `RetryFailed` stops the queue if it raises, or returns no finite number."""
    retry_streams: RetryStreams | None = None
    """Streams in which messages wait that are not due soon. None: they wait in memory, and their
    window grows up to `max_window`."""
    dead_letter: DeadLetter | None = None
    """The stream for messages that are given up."""
    on_giving_up: OnGivingUp | None = None
    """Called with each delivery that is given up, before it becomes a dead letter. Without callback
    and dead letters, an error is logged."""
    backoff: Probing | None = None
    """Slows the queue down while handlers fail; None: does not."""

    # Calls
    commit_interval: Duration = 1.0
    """Seconds between writes of acks."""
    timeout: Duration | None = None
    """Seconds to join the group; None is the client's call_timeout."""

    def __post_init__(self) -> None:
        """Check every field.

        Raises:
            InvalidRequest: a value is invalid.
            WrongType: a value has the wrong type.
        """
        check_type(self.start, StartAt, "a queue starts at a StartAt")
        check_on_reset(self.on_reset)
        text = "committed must be True or False, or a ReadCommitted"
        check_type(self.committed, (bool, ReadCommitted), text)
        check_flags(unpause=self.unpause)
        check_number(self.sample, "sample")
        if not 0 < self.sample <= 1:
            raise InvalidRequest("sample must be more than 0 and at most 1")
        check_whole_number(self.max_in_flight, "max_in_flight", 1, INT64_MAX)
        check_whole_number(self.max_attempts, "max_attempts", 0, INT64_MAX)
        check_whole_number(self.max_window, "max_window", 1, INT64_MAX)
        for name in ("ack_wait", "commit_interval"):
            if not timer_seconds(getattr(self, name), name):
                raise InvalidRequest(f"{name} must be longer than 0 seconds")
        if self.timeout is not None:
            timer_seconds(self.timeout, "timeout")
        check_type(self.order, Order, "order must be an Order")
        checked_retry(self.retry)
        for name, kind in _POLICIES.items():
            if getattr(self, name) is not None:
                check_type(getattr(self, name), kind, f"{name} must be a {kind.__name__}")
        if self.on_giving_up is not None:
            check_callable(self.on_giving_up, "on_giving_up")
        if self.nats is not None:
            servers = names([self.nats] if isinstance(self.nats, str) else self.nats, "nats")
            if not servers or not all(servers):
                raise InvalidRequest("nats must be one or more addresses of NATS servers")
            object.__setattr__(self, "nats", tuple(servers))  # a list may change


_POLICIES: Final[dict[str, type]] = {
    "retry_streams": RetryStreams,
    "dead_letter": DeadLetter,
    "backoff": Probing,
}
