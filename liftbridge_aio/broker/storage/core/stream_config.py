"""Settings that a stream was created with, and the limits of its logs that follow from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

from liftbridge_aio.broker.errors import BrokerError, Code

_DEFAULT_MIN_ISR: Final = 1
_MILLISECOND: Final = 10**6
_WEEK: Final = 7 * 24 * 60 * 60 * 1000 * _MILLISECOND
_DEFAULT_SEGMENT_BYTES: Final = 256 * 1024 * 1024
_SEGMENT_BYTES_FOR_ZERO: Final = 1024 * 1024 * 1024
_DEFAULT_CLEANER_INTERVAL: Final = 5 * 60 * 1000 * _MILLISECOND
_MUST_NOT_BE_NEGATIVE: Final = (
    "cleaner_interval",
    "compact_max_goroutines",
    "segment_max_bytes",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamConfig:
    """The settings of a CreateStream request, durations in milliseconds as in the protocol.

    None: not set, so the server's default applies.
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
    """In-sync replicas that are required to commit."""
    optimistic_concurrency_control: bool = False
    encryption: bool = False
    """Values are not encrypted in memory; brokers with a data directory refuse such streams."""

    def validate(self) -> None:
        """Refuse values that would crash a real server, which accepts other negative values.

        Raises:
            BrokerError: a value would crash a real server.
        """
        for name in _MUST_NOT_BE_NEGATIVE:
            value = getattr(self, name)
            if value is not None and value < 0:
                raise BrokerError(Code.INVALID_ARGUMENT, f"Invalid {name} {value}")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLimits:
    """The limits of one log; the defaults are those of a v1.9.0 server. Ages in nanoseconds."""

    retention_max_bytes: int = 0
    """Sealed segments that exceed this with all later ones are deleted; 0 or less: no limit."""
    retention_max_messages: int = 0
    """The same, counted in messages."""
    retention_max_age: int = _WEEK
    """Sealed segments whose last message is older are deleted; 0 or less: no limit."""
    segment_max_bytes: int = _DEFAULT_SEGMENT_BYTES
    """A segment of this size or more is sealed before the next message."""
    segment_max_age: int = _WEEK
    """A segment whose first message is this old is sealed; 0: no limit; less: always."""
    compact: bool = False
    """Retain only the last message of each key in sealed segments."""

    @classmethod
    def from_config(cls, config: StreamConfig) -> Self:
        """Return the limits that follow from a stream's settings."""
        given: dict[str, int | None] = {
            "retention_max_bytes": config.retention_max_bytes,
            "retention_max_messages": config.retention_max_messages,
            "retention_max_age": _nanoseconds(config.retention_max_age),
            "segment_max_bytes": config.segment_max_bytes,
            "segment_max_age": _nanoseconds(config.segment_max_age),
        }
        if config.segment_max_bytes == 0:
            given["segment_max_bytes"] = _SEGMENT_BYTES_FOR_ZERO
        return cls(
            compact=bool(config.compact_enabled),
            **{name: value for name, value in given.items() if value is not None},
        )


def cleaner_interval(config: StreamConfig) -> int:
    """Return the nanoseconds between two cleanings of a stream's logs."""
    return _nanoseconds(config.cleaner_interval) or _DEFAULT_CLEANER_INTERVAL


def _nanoseconds(milliseconds: int | None) -> int | None:
    return None if milliseconds is None else milliseconds * _MILLISECOND
