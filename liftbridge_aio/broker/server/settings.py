"""The settings that the brokers of one cluster share, and their checks."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass
from typing import Final

from liftbridge_aio._core.arguments import check_flags, check_integer, check_number, check_type
from liftbridge_aio.broker.flaws import FLAWLESS, Flaws
from liftbridge_aio.errors import WrongType

from .tls import BrokerTLS

DEFAULT_MAX_BYTES: Final = 2**20
"""Size limit of messages on real servers, by default."""

DEFAULT_GROUP_TIMEOUT: Final = 15.0
"""Seconds after which real servers expel members and let them report, by default."""


class ServerProfile(enum.Enum):
    """The server versions that clients can tell apart."""

    V1_9 = "v1.9.0"
    """The last release: it reads forward whatever a Subscribe asks for."""
    NEWER = "newer"
    """Later versions: they read in reverse."""

    @property
    def reads_in_reverse(self) -> bool:
        """True if a Subscribe may read backwards."""
        return self is ServerProfile.NEWER


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettings:
    """Settings of brokers, documented in `EmbeddedBroker`. Timeouts in seconds."""

    namespace: str
    cursors_partitions: int
    max_message_bytes: int
    max_payload_bytes: int
    consumer_timeout: float
    coordinator_timeout: float
    activity: bool
    tls: BrokerTLS | None
    profile: ServerProfile
    flaws: Flaws = FLAWLESS
    encrypts: bool = True
    """True if streams with encryption are accepted."""

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            ValueError: a number is out of range.
            WrongType: `tls` is another kind of TLS, say that of a client, `activity` no bool,
                `profile` no `ServerProfile` or `flaws` no `Flaws`.
        """
        check_integer(self.cursors_partitions, "cursors_partitions")
        check_integer(self.max_message_bytes, "max_message_bytes")
        check_integer(self.max_payload_bytes, "max_payload_bytes")
        limits = (self.max_message_bytes, self.max_payload_bytes)
        if self.cursors_partitions < 0 or min(limits) < 1:
            raise ValueError("cursors_partitions must not be negative, and limits must be positive")
        check_timeouts(
            consumer_timeout=self.consumer_timeout, coordinator_timeout=self.coordinator_timeout
        )
        check_flags(activity=self.activity)
        check_type(self.profile, ServerProfile, "the profile of a broker is a ServerProfile")
        check_type(self.flaws, Flaws, "the flaws of a broker are Flaws")
        tls: object = self.tls
        if tls is not None and not isinstance(tls, BrokerTLS):
            raise WrongType(f"the tls of a broker is a BrokerTLS, not {type(tls).__name__}")


def check_timeouts(**timeouts: float) -> None:
    """Refuse timeouts that are not positive, naming them.

    Raises:
        ValueError: a timeout is not a positive number of seconds.
    """
    for name, timeout in timeouts.items():
        check_number(timeout, name)
        if not math.isfinite(timeout) or timeout <= 0:
            raise ValueError(f"{name} must be a positive number of seconds, not {timeout}")
