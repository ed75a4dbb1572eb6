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
    """An earlier message of its key, or of its partition, is unsettled."""
    DELAYED = "delayed"
    """To be handed out again at a later time."""
    READY = "ready"
    IN_FLIGHT = "in flight"
    """Handed out, and not answered."""
    GIVING_UP = "giving up"
    """Not handed out any more: it is moved to the dead letters, or reported."""
    ACKED = "acked"
    NACKED = "nacked"
    REJECTED = "rejected"
    GIVEN_UP = "given up"
    EXPIRED = "expired"
    """Not answered within ack_wait."""
    DROPPED = "dropped"
    """The partition was released: another member has it, or will have it."""


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
    # DELAYED: one that was to be moved to a retry stream, and is too large for it.
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
"""The allowed state transitions. A new attempt begins as BLOCKED, DELAYED, READY or GIVING_UP."""

_READY: Final = AttemptState.READY  # members are slow to look up
SETTLED: Final = frozenset(
    {AttemptState.ACKED, AttemptState.NACKED, AttemptState.REJECTED, AttemptState.GIVEN_UP}
)
"""The states of an attempt that was answered."""


class Attempt:
    """One attempt to process a message.

    Attributes:
        message: the message.
        attempt: 1 for the first one; 0 before it is handed out.
        state: changed by the window only.
        deadline: until when it must be answered while it is in flight, or when a delayed one, or
            one that is moved, is due.
        error: why the attempt before this one failed, or why the message is given up.
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
        text = "the partition was released: the queue was closed, or another member has it"
        error = LeaseExpired(text)
    message = attempt.message
    error.at(message.stream, message.partition, message.offset)
    return error
