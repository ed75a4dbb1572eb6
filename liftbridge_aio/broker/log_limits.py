"""When a log rolls to a new segment, and what it forgets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

from .stream_config import StreamConfig

_MILLISECOND: Final = 10**6
_WEEK: Final = 7 * 24 * 60 * 60 * 1000 * _MILLISECOND
_DEFAULT_SEGMENT_BYTES: Final = 256 * 1024 * 1024
_SEGMENT_BYTES_FOR_ZERO: Final = 1024 * 1024 * 1024
_DEFAULT_CLEANER_INTERVAL: Final = 5 * 60 * 1000 * _MILLISECOND


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLimits:
    """The limits of one log; the defaults are those of a v1.9.0 server. Ages in nanoseconds."""

    retention_max_bytes: int = 0
    """Sealed segments that do not fit in with all later ones are forgotten; 0 or less: no limit."""
    retention_max_messages: int = 0
    """The same, counted in messages."""
    retention_max_age: int = _WEEK
    """Sealed segments whose last message is older are forgotten; 0 or less: no limit."""
    segment_max_bytes: int = _DEFAULT_SEGMENT_BYTES
    """A segment of this size or more is sealed before the next message."""
    segment_max_age: int = _WEEK
    """A segment whose first message is this old is sealed; 0: no limit; less: always."""
    compact: bool = False
    """Of each key, only the last message stays in the sealed segments."""

    @classmethod
    def from_config(cls, config: StreamConfig) -> Self:
        """Take what a stream was created with, and the defaults for what was not given."""
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
    """Return how often the logs of a stream are to be cleaned, in nanoseconds."""
    return _nanoseconds(config.cleaner_interval) or _DEFAULT_CLEANER_INTERVAL


def _nanoseconds(milliseconds: int | None) -> int | None:
    return None if milliseconds is None else milliseconds * _MILLISECOND
