"""One attempt to process a message: its states as a table, and the error of a late answer."""

from __future__ import annotations

import enum
from math import inf
from typing import Final

from liftbridge_aio.model import Message
from liftbridge_aio.queue.errors import AlreadySettled, LeaseExpired


class AttemptState(enum.Enum):
    """The state of one attempt to process a message."""

    BLOCKED = "blocked"
    """It waits until earlier messages of its key, or of its partition, are settled."""
    DELAYED = "delayed"
    """It is redelivered at a later time."""
    READY = "ready"
    """It is redelivered as soon as there is capacity."""
    IN_FLIGHT = "in flight"
    """Delivered, and not answered."""
    GIVING_UP = "giving up"
    """Not delivered any more: it is being dead-lettered, or moved to a retry stream."""
    ACKED = "acked"
    NACKED = "nacked"
    REJECTED = "rejected"
    GIVEN_UP = "given up"
    EXPIRED = "expired"
    """Not answered within ack_wait."""
    DROPPED = "dropped"
    """Retracted, or the partition was released or lost: a later attempt delivers the message."""


MOVES: Final = {
    AttemptState.BLOCKED: {AttemptState.READY, AttemptState.DROPPED},
    AttemptState.DELAYED: {AttemptState.READY, AttemptState.DROPPED},
    AttemptState.READY: {AttemptState.IN_FLIGHT, AttemptState.GIVING_UP, AttemptState.DROPPED},
    AttemptState.IN_FLIGHT: {
        AttemptState.ACKED,
        AttemptState.NACKED,
        AttemptState.REJECTED,
        AttemptState.EXPIRED,
        AttemptState.DROPPED,
    },
    # DELAYED: the message is too large for the retry stream, so it waits in memory.
    AttemptState.GIVING_UP: {
        AttemptState.GIVEN_UP,
        AttemptState.DELAYED,
        AttemptState.DROPPED,
    },
    AttemptState.ACKED: set[AttemptState](),
    AttemptState.NACKED: set[AttemptState](),
    AttemptState.REJECTED: set[AttemptState](),
    AttemptState.GIVEN_UP: set[AttemptState](),
    AttemptState.EXPIRED: set[AttemptState](),
    AttemptState.DROPPED: set[AttemptState](),
}
"""The allowed transitions. A new attempt begins as BLOCKED, DELAYED, READY or GIVING_UP."""

_READY: Final = AttemptState.READY  # members are slow to look up
SETTLED: Final = frozenset(
    {AttemptState.ACKED, AttemptState.NACKED, AttemptState.REJECTED, AttemptState.GIVEN_UP}
)
"""The states of an attempt that was answered."""


class Attempt:
    """One attempt to process a message.

    Attributes:
        message: the message.
        attempt: 1 for the first one; 0 before it is delivered.
        state: changed by the window, or by the lease of a remote owner.
        deadline: in flight: the end of ack_wait; delayed or moved: the due time; else infinite.
        error: the error of the attempt before, or the reason for the dead letter.
    """

    __slots__ = ("attempt", "deadline", "error", "message", "state")

    def __init__(self, message: Message) -> None:
        self.message = message
        self.attempt = 0
        self.state = _READY
        self.deadline = inf
        self.error: BaseException | None = None

    @property
    def offset(self) -> int:
        """The offset of the message."""
        return self.message.offset


def refusal(attempt: Attempt) -> AlreadySettled | LeaseExpired:
    """Return the error of an answer to an attempt that has ended."""
    error: AlreadySettled | LeaseExpired
    if attempt.state in SETTLED:
        error = AlreadySettled(f"the delivery was {attempt.state.value} before")
    elif attempt.state is AttemptState.EXPIRED:
        error = LeaseExpired("the delivery was not answered within ack_wait")
    else:
        text = "the partition was released: the queue was closed, or another member owns it"
        error = LeaseExpired(text)
    message = attempt.message
    error.at(message.stream, message.partition, message.offset)
    return error
