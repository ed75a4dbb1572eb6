"""How a broker behaves towards clients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from .profile import ServerProfile

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
