"""The errors of queues, a tree below `LiftbridgeError`.

QueueError
├── AlreadySettled (UsageError)   the delivery was answered before
├── LeaseExpired                  the answer comes too late: the message is delivered again
├── QueueTaken                    another member has written the acks of a partition
└── TooManyDeadLetters            the limit of dead letters stopped the queue
"""

from __future__ import annotations

from liftbridge_aio.errors import LiftbridgeError, UsageError


class QueueError(LiftbridgeError):
    """Root of the errors of queues."""


class AlreadySettled(QueueError, UsageError):
    """The delivery was acked, nacked or rejected before; nothing has changed."""

    hint = "answer each delivery once; `run` acks it when its handler returns"


class LeaseExpired(QueueError):
    """The answer comes too late, so the message is delivered again, or was."""

    hint = "raise ack_wait, or extend() the delivery while it is being processed"


class QueueTaken(QueueError):
    """Another member has taken a partition, so this one may not write its acks any more."""

    hint = "nothing to do: the partition is read again if it is still this member's"


class TooManyDeadLetters(QueueError):
    """More messages were given up than the limit of the dead letters allows."""

    hint = "repair what makes handlers fail, then start the queue again"
