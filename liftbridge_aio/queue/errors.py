"""The errors of queues, a tree below `LiftbridgeError`.

QueueError
├── AlreadySettled (UsageError)   the delivery was answered before
├── FailedElsewhere               the attempt before failed at another member
├── LeaseExpired                  the answer is late: the message is redelivered
│   └── AnswerInDoubt             the owner of the partition did not confirm the answer
├── QueueTaken                    another member has claimed a partition
├── RetryFailed                   `retry` raised, or returned no delay
└── TooManyDeadLetters            the limit of dead letters stopped the queue
"""

from __future__ import annotations

from typing import Final

from liftbridge_aio._core import foreign_text
from liftbridge_aio.errors import LiftbridgeError, UsageError

_MOST_CHARACTERS: Final = 1000
"""The longest error text in a dead letter or a lease."""


class QueueError(LiftbridgeError):
    """Root of the errors of queues."""


class AlreadySettled(QueueError, UsageError):
    """The delivery was acked, nacked or rejected before; this answer has no effect."""

    hint = "answer each delivery once; `run` acks it when its handler returns"


class FailedElsewhere(QueueError):
    """The attempt before failed at another member; the text is its error."""


class LeaseExpired(QueueError):
    """The answer is late: the message is redelivered, or was."""

    hint = "use a longer ack_wait, or extend() the delivery during processing"


class AnswerInDoubt(LeaseExpired):
    """The owner of the partition did not confirm the answer: it counts, or the message returns."""

    hint = "make handlers idempotent; if this happens often, check the connections to NATS"


class QueueTaken(QueueError):
    """Another member has claimed a partition, so this one can no longer store its acks."""

    hint = "nothing to do: if this member still owns the partition, it claims it anew"


class RetryFailed(QueueError):
    """The function `retry` raised an exception, or returned no delay.

    It stops the queue. The message stays unsettled, so the next member redelivers it.
    """

    hint = "fix the function: it must return a finite number of seconds from 0 up"


class TooManyDeadLetters(QueueError):
    """More messages in sequence failed for good than `DeadLetter.limit` allows."""

    hint = "fix the cause of the failures, then restart the queue"


def error_text(error: BaseException) -> str:
    """Return the text of an error for other members and for dead letters."""
    if isinstance(error, FailedElsewhere):
        return foreign_text.report_text(error.message)
    text, name = foreign_text.error_text(error), type(error).__name__
    return (f"{name}: {text}" if text else name)[:_MOST_CHARACTERS]
