"""Settings that a stream was created with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from .errors import BrokerError, Code

_DEFAULT_MIN_ISR: Final = 1
_MUST_NOT_BE_NEGATIVE: Final = (
    "cleaner_interval",
    "compact_max_goroutines",
    "segment_max_bytes",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamConfig:
    """What a CreateStream asked for, in the units of the wire (durations in milliseconds).

    None stands for what was not given: the default of the server.
    """

    retention_max_bytes: int | None = None
    retention_max_messages: int | None = None
    retention_max_age: int | None = None
    cleaner_interval: int | None = None
    segment_max_bytes: int | None = None
    segment_max_age: int | None = None
    compact_max_goroutines: int | None = None
    compact_enabled: bool | None = None
    auto_pause_time: int | None = None
    auto_pause_disable_if_subscribers: bool | None = None
    min_isr: int = _DEFAULT_MIN_ISR
    """In-sync replicas without which nothing is committed."""
    optimistic_concurrency_control: bool = False
    encryption: bool = False
    """Values are kept in plain all the same. Brokers with a data directory refuse such streams."""

    def validate(self) -> None:
        """Refuse what would crash a real server (W30); it takes other negative values as they are.

        Raises:
            BrokerError: a value would crash a real server.
        """
        for name in _MUST_NOT_BE_NEGATIVE:
            value = getattr(self, name)
            if value is not None and value < 0:
                text = f"Invalid {name} {value}"
                raise BrokerError(Code.INVALID_ARGUMENT, text)
