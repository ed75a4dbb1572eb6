"""The errors of queues, a tree below `LiftbridgeError`.

QueueError
├── AlreadySettled (UsageError)   the delivery was answered before
├── FailedElsewhere               an attempt failed at another member
├── LeaseExpired                  the answer comes too late: the message is delivered again
│   └── AnswerInDoubt             it is unknown if the owner of the partition has the answer
├── QueueTaken                    another member has written the acks of a partition
├── RetryFailed                   the function `retry` failed, or returned no delay
└── TooManyDeadLetters            the limit of dead letters stopped the queue
"""

from __future__ import annotations

from typing import Final

from liftbridge_aio._core import foreign_text
from liftbridge_aio.errors import LiftbridgeError, UsageError

_MOST_CHARACTERS: Final = 1000
"""Of an error that is shown to others."""


class QueueError(LiftbridgeError):
    """Root of the errors of queues."""


class AlreadySettled(QueueError, UsageError):
    """The delivery was acked, nacked or rejected before; nothing has changed."""

    hint = "answer each delivery once; `run` acks it when its handler returns"


class FailedElsewhere(QueueError):
    """The attempt before this one failed at another member; the text has its error."""


class LeaseExpired(QueueError):
    """The answer comes too late, so the message is delivered again, or was."""

    hint = "raise ack_wait, or extend() the delivery while it is being processed"


class AnswerInDoubt(LeaseExpired):
    """The owner of the partition may have taken the answer, or the message is delivered again."""

    hint = "make handlers idempotent; look at the connections to NATS if this happens often"


class QueueTaken(QueueError):
    """Another member has taken a partition, so this one may not write its acks any more."""

    hint = "nothing to do: the partition is read again if it is still this member's"


class RetryFailed(QueueError):
    """The function `retry` of the queue raised an exception, or returned no delay.

    It stops the queue. The message is unsettled, so it is delivered again by the next member.
    """

    hint = "repair the function: it returns seconds from 0 up, as a finite number"


class TooManyDeadLetters(QueueError):
    """More messages were given up than the limit of the dead letters allows."""

    hint = "repair what makes handlers fail, then start the queue again"


def error_text(error: BaseException) -> str:
    """Return an error as it is shown to other members, and in dead letters."""
    if isinstance(error, FailedElsewhere):
        return foreign_text.report_text(error.message)
    text, name = foreign_text.error_text(error), type(error).__name__
    return (f"{name}: {text}" if text else name)[:_MOST_CHARACTERS]
