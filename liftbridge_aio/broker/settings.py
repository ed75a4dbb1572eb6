"""How a broker behaves towards clients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from liftbridge_aio.errors import WrongType

from .profile import ServerProfile
from .tls import BrokerTLS

DEFAULT_GROUP_TIMEOUT: Final = 15.0
"""Seconds after which a real server expels members and lets them report, by default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettings:
    """How a broker behaves towards clients. Timeouts in seconds."""

    profile: ServerProfile = ServerProfile.V1_9
    consumer_timeout: float = DEFAULT_GROUP_TIMEOUT
    coordinator_timeout: float = DEFAULT_GROUP_TIMEOUT
    activity: bool = False
    """Whether there is an activity stream."""
    encrypts: bool = True
    """Whether streams with encryption are taken."""
    tls: BrokerTLS | None = None
    """How to speak TLS; None: connections are plain."""

    def __post_init__(self) -> None:
        """Check what is easily mistaken.

        Raises:
            WrongType: `tls` is another kind of TLS, say that of a client.
        """
        tls: object = self.tls
        if tls is not None and not isinstance(tls, BrokerTLS):
            text = f"the tls of a broker is a BrokerTLS, not {type(tls).__name__}"
            raise WrongType(text)
