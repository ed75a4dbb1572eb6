"""The states of a lease at the member that holds it, as a table."""

from __future__ import annotations

import enum
from typing import Final

from .attempt import AttemptState


class LeaseState(enum.Enum):
    """The state of a lease."""

    HELD = "held"
    """Unanswered."""
    ANSWERED = "answered"
    """Answered; the answer is not sent yet, or certainly did not arrive."""
    SENT = "sent"
    """The answer was sent once, and is not confirmed."""
    REPEATED = "repeated"
    """The answer was sent more than once, and is not confirmed; any of them may have arrived."""
    CONFIRMED = "confirmed"
    """The owner has accepted the answer."""
    REFUSED = "refused"
    """The owner has refused the answer: it was late."""
    EXPIRED = "expired"
    """`ack_wait` is over, and no answer has reached the owner."""
    MOVED = "moved"
    """Another member owns the partition now, and no answer has reached the former owner."""
    GIVEN_BACK = "given back"
    """The message went back to the owner unprocessed."""
    IN_DOUBT = "in doubt"
    """The answer was sent and not confirmed in time; the owner may have accepted it."""


class LeaseEvent(enum.Enum):
    """An event of a lease."""

    ANSWER = "answer"
    SEND = "send"
    BOUNCE = "bounce"
    """NATS reports that the answer had no receiver."""
    CONFIRM = "confirm"
    REFUSE = "refuse"
    EXPIRE = "expire"
    MOVE = "move"
    GIVE_BACK = "give back"


_S, _E = LeaseState, LeaseEvent

LEASE_MOVES: Final = {
    (_S.HELD, _E.ANSWER): _S.ANSWERED,
    (_S.HELD, _E.REFUSE): _S.REFUSED,  # an extend that came too late
    (_S.HELD, _E.EXPIRE): _S.EXPIRED,
    (_S.HELD, _E.MOVE): _S.MOVED,
    (_S.HELD, _E.GIVE_BACK): _S.GIVEN_BACK,
    (_S.ANSWERED, _E.SEND): _S.SENT,
    (_S.ANSWERED, _E.EXPIRE): _S.EXPIRED,
    (_S.ANSWERED, _E.MOVE): _S.MOVED,
    (_S.SENT, _E.SEND): _S.REPEATED,
    (_S.SENT, _E.BOUNCE): _S.ANSWERED,
    (_S.SENT, _E.CONFIRM): _S.CONFIRMED,
    (_S.SENT, _E.REFUSE): _S.REFUSED,
    (_S.SENT, _E.EXPIRE): _S.IN_DOUBT,
    (_S.SENT, _E.MOVE): _S.IN_DOUBT,
    (_S.REPEATED, _E.CONFIRM): _S.CONFIRMED,
    (_S.REPEATED, _E.REFUSE): _S.REFUSED,
    (_S.REPEATED, _E.EXPIRE): _S.IN_DOUBT,
    (_S.REPEATED, _E.MOVE): _S.IN_DOUBT,
}
"""The next state. An event that is not listed is late, and changes nothing."""

UNCONFIRMED: Final = frozenset({_S.ANSWERED, _S.SENT, _S.REPEATED})
"""The states in which the answer is resent until it is confirmed."""

LOST: Final = {
    _S.REFUSED: AttemptState.EXPIRED,
    _S.EXPIRED: AttemptState.EXPIRED,
    _S.IN_DOUBT: AttemptState.EXPIRED,
    _S.MOVED: AttemptState.DROPPED,
    _S.GIVEN_BACK: AttemptState.DROPPED,
}
"""The state of the delivery once its lease has ended without a confirmed answer."""


def following(state: LeaseState, event: LeaseEvent) -> LeaseState:
    """Return the state after an event."""
    return LEASE_MOVES.get((state, event), state)
