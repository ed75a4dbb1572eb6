"""Events that a client tells of: frozen values, one class for each kind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from liftbridge_aio.errors import LiftbridgeError

from .errors import SessionLost
from .message import Message


@dataclass(frozen=True, slots=True)
class Lost:
    """The session is lost: another client has replaced this one, or the server is away or new."""

    error: SessionLost


@dataclass(frozen=True, slots=True)
class Recovered:
    """A new session is open, and the subscriptions are created again."""

    attempts: int
    """Attempts that it took."""
    subscriptions: int
    """Subscriptions that were created again."""


@dataclass(frozen=True, slots=True)
class GaveUp:
    """There will be no other session; what is called from now on raises the error."""

    error: LiftbridgeError


@dataclass(frozen=True, slots=True)
class SubscriptionFailed:
    """A subscription could not be created again in a new session; its readers get the error."""

    channel: str
    error: LiftbridgeError


@dataclass(frozen=True, slots=True)
class HandlerFailed:
    """The handler of `Subscription.run` raised an exception, so the message is not acked."""

    message: Message
    error: BaseException


Event: TypeAlias = Lost | Recovered | GaveUp | SubscriptionFailed | HandlerFailed
"""Whatever a client tells of."""
