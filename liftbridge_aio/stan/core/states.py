"""States of a client and of a subscription, and what leads from one to the other."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final


class ClientState(enum.Enum):
    """State of a client."""

    NEW = "new"
    CONNECTING = "connecting"
    OPEN = "open"
    CHECKING = "checking"
    """NATS was away. Nothing is sent before the server has confirmed that it knows the session."""
    LOST = "lost"
    """The server does not know the session any more; a new one is being opened."""
    FAILED = "failed"
    """The session is lost, and there will be no other."""
    CLOSED = "closed"


class ClientEvent(enum.Enum):
    """Events in the life of a client."""

    CONNECT = "connect"
    ACCEPTED = "accepted"
    RECONNECTED = "reconnected"
    CONFIRMED = "confirmed"
    LOST = "lost"
    GIVEN_UP = "given up"
    CLOSE = "close"


_S, _E = ClientState, ClientEvent

CLIENT_STEPS: Final[Mapping[tuple[ClientState, ClientEvent], ClientState]] = {
    (_S.NEW, _E.CONNECT): _S.CONNECTING,
    (_S.CONNECTING, _E.ACCEPTED): _S.OPEN,
    (_S.OPEN, _E.RECONNECTED): _S.CHECKING,
    (_S.CHECKING, _E.RECONNECTED): _S.CHECKING,
    (_S.CHECKING, _E.CONFIRMED): _S.OPEN,
    (_S.OPEN, _E.LOST): _S.LOST,
    (_S.CHECKING, _E.LOST): _S.LOST,
    (_S.LOST, _E.ACCEPTED): _S.OPEN,
    (_S.OPEN, _E.GIVEN_UP): _S.FAILED,
    (_S.CHECKING, _E.GIVEN_UP): _S.FAILED,
    (_S.LOST, _E.GIVEN_UP): _S.FAILED,
    **{(state, _E.CLOSE): _S.CLOSED for state in ClientState},
}
"""The state after an event; what is not in it cannot happen."""


class SubscriptionState(enum.Enum):
    """State of a subscription."""

    NEW = "new"
    OPENING = "opening"
    OPEN = "open"
    LOST = "lost"
    """It went with its session; it is created again in the next one."""
    ENDING = "ending"
    """No more messages are delivered, and the server has not confirmed the end yet."""
    FAILED = "failed"
    """It went with its session and could not be created again."""
    CLOSED = "closed"


class SubscriptionEvent(enum.Enum):
    """Events in the life of a subscription."""

    OPEN = "open"
    ACCEPTED = "accepted"
    REFUSED = "refused"
    LOST = "lost"
    GIVEN_UP = "given up"
    END = "end"
    ENDED = "ended"
    CLIENT_CLOSED = "client closed"


_T, _F = SubscriptionState, SubscriptionEvent

SUBSCRIPTION_STEPS: Final[
    Mapping[tuple[SubscriptionState, SubscriptionEvent], SubscriptionState]
] = {
    (_T.NEW, _F.OPEN): _T.OPENING,
    (_T.OPENING, _F.ACCEPTED): _T.OPEN,
    (_T.OPENING, _F.REFUSED): _T.NEW,
    (_T.OPEN, _F.LOST): _T.LOST,
    (_T.LOST, _F.LOST): _T.LOST,
    (_T.LOST, _F.ACCEPTED): _T.OPEN,
    (_T.OPEN, _F.GIVEN_UP): _T.FAILED,
    (_T.LOST, _F.GIVEN_UP): _T.FAILED,
    (_T.OPEN, _F.END): _T.ENDING,
    (_T.ENDING, _F.END): _T.ENDING,
    (_T.ENDING, _F.ENDED): _T.CLOSED,
    (_T.ENDING, _F.LOST): _T.CLOSED,
    (_T.LOST, _F.ENDED): _T.CLOSED,
    (_T.FAILED, _F.ENDED): _T.CLOSED,
    **{(state, _F.CLIENT_CLOSED): _T.CLOSED for state in SubscriptionState},
}
"""The state after an event; what is not in it cannot happen."""
