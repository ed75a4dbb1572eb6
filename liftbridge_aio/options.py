"""Options of the client, of streams and of single calls: frozen and checked when they are made.

Durations are seconds, as a float or a `timedelta`. Where a call takes `timeout=`, None means the
client's value and `math.inf` means for ever.
"""

from __future__ import annotations

import enum
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Any, Final, Self

from ._core.arguments import check_callable, check_flags, check_type, check_whole_number
from .errors import InvalidRequest, WrongType
from .interceptors import Interceptor, checked_interceptors
from .model import Partitioner
from .retry import DEFAULT_BACKOFF, Backoff
from .telemetry import NO_HOOK, Hook, hooks_of
from .tls import TLS

Duration = float | timedelta
"""Seconds as a float, or a timedelta."""

_INT32_MAX: Final = 2**31 - 1
_INT64_MAX: Final = 2**63 - 1
_MIB: Final = 2**20
_LONGEST: Final = float(_INT64_MAX // 10**9)  # seconds that fit in int64 nanoseconds: 292 years


class Unset(enum.Enum):
    """Marks an omitted argument where None has a meaning of its own."""

    UNSET = "unset"


UNSET: Final = Unset.UNSET
"""The only value of `Unset`."""


def seconds(duration: Duration, name: str = "duration") -> float:
    """Turn a duration into float seconds (infinity allowed).

    Raises:
        InvalidRequest: it is negative or "not a number".
        WrongType: it is neither a number nor a timedelta.
    """
    if isinstance(duration, bool) or not isinstance(duration, int | float | timedelta):
        raise _wrong_type(name, "a number of seconds or a timedelta", duration)
    value = duration.total_seconds() if isinstance(duration, timedelta) else float(duration)
    if math.isnan(value) or value < 0:
        raise InvalidRequest(f"{name} is a number of seconds from 0 up, not {duration!r}")
    return value


_FOR_EVER: Final = 90_000_000.0


def timer_seconds(duration: Duration, name: str = "duration") -> float:
    """Turn a duration into seconds that a timer can hold: "for ever" becomes nearly three years.

    Event loops and the `grpc-timeout` header (eight digits) cannot carry infinity.

    Raises:
        InvalidRequest: it is negative or not a number.
    """
    return min(seconds(duration, name), _FOR_EVER)


def _wrong_type(name: str, wanted: str, value: object) -> WrongType:
    return WrongType(f"{name} is {wanted}, not {value!r}")


def _positive(options: object, *names: str) -> None:
    for name in names:
        if seconds(getattr(options, name), name) == 0:
            raise InvalidRequest(f"{name} must be longer than 0 seconds")


def _in_range(options: object, low: int, high: int, *names: str, or_none: bool = False) -> None:
    for name in names:
        value = getattr(options, name)
        if value is None and or_none:
            continue
        check_whole_number(value, name, low, high)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """Options of a client. Every field has a default that is meant for production."""

    # Timeouts
    connect_timeout: Duration = 5.0
    """Seconds to open one connection."""
    call_timeout: Duration = 10.0
    """Seconds for one call as a whole, retries included; sent to the server as its deadline."""
    ack_timeout: Duration = 5.0
    """Seconds from writing a message to its ack; then `AckTimeout`."""
    publish_timeout: Duration = 30.0
    """Seconds that a publish may wait for room in the in-flight window and for a connection."""
    resubscribe_timeout: Duration | None = None
    """Seconds for which a broken subscription is retried; None: for ever, but 30 s if it has a
    stop."""
    close_timeout: Duration = 5.0
    """Seconds that `aclose` waits for acks before it fails the remaining publishes."""

    # Retries and health
    backoff: Backoff = DEFAULT_BACKOFF
    """Delays between attempts to connect, to resubscribe, and of calls."""
    not_found_timeout: Duration = 5.0
    """Seconds for which a server must answer "not found" until a stream counts as gone. Right after
    a stream is created some brokers do not know it yet, and a single server knows none for about
    two seconds after a start; a broken connection restarts the time."""
    health_interval: Duration = 10.0
    """Seconds without received data after which a connection gets a health check."""
    health_timeout: Duration = 4.0
    """Seconds to wait for the answer to a health check; then the connection is closed as lost."""

    # Limits
    max_in_flight: int = 16_384
    """Messages in flight at once over the whole client; further publishes wait."""
    max_in_flight_bytes: int = 64 * _MIB
    """The same limit in bytes."""
    max_buffered_bytes: int = 64 * _MIB
    """Bytes of unread messages that all subscriptions together may buffer; the flow-control windows
    shrink as subscriptions are added."""
    max_message_bytes: int = _MIB
    """Largest message that is sent, envelope and headers included. The servers' own limits are
    1 MiB too unless they are configured otherwise."""
    max_receive_bytes: int = 64 * _MIB
    """Largest message that is accepted from a server. Whatever this is, metadata may have 4 MiB at
    most, as in other clients of gRPC, and all other replies 256 KiB."""

    # Choices
    tls: TLS | None = None
    """TLS settings; None: plain connections. A URL `liftbridge+tls://` enables TLS, too."""
    data_lane: bool = True
    """Read messages past grpclib and h2, which takes a tenth of the time. False, or a version of
    grpclib with other internals than those known, uses the plain path: all calls through grpclib.
    """
    partitioner: Partitioner | None = None
    """Chooses the partition if a publish names none; None: by key, else partition 0."""
    hook: Hook | Sequence[Hook] = NO_HOOK
    """Receives events; one hook or several. See `liftbridge_aio.telemetry`."""
    interceptors: Sequence[Interceptor] = ()
    """Run around every publish and every processing of a message; the first is the outermost. See
    `liftbridge_aio.interceptors`."""
    address_map: Callable[[str], str] | None = None
    """Turns the `host:port` that a broker advertises into the one to connect to, for brokers
    behind port mappings or in containers. Seeds are used as they are."""

    def __post_init__(self) -> None:
        """Check every field.

        Raises:
            InvalidRequest: a value is invalid.
            WrongType: a value has the wrong type.
        """
        _positive(
            self,
            "connect_timeout",
            "call_timeout",
            "ack_timeout",
            "publish_timeout",
            "health_interval",
            "health_timeout",
        )
        if self.resubscribe_timeout is not None:
            _positive(self, "resubscribe_timeout")
        for name in ("close_timeout", "not_found_timeout"):
            seconds(getattr(self, name), name)
        _in_range(self, 1, _INT64_MAX, "max_in_flight", "max_in_flight_bytes", "max_buffered_bytes")
        _in_range(self, 1, 2**32 - 1, "max_message_bytes", "max_receive_bytes")
        check_type(self.backoff, Backoff, "backoff is a Backoff")
        if self.tls is not None:
            check_type(self.tls, TLS, "tls is a TLS, or None")
        check_flags(data_lane=self.data_lane)
        hooks = hooks_of(self.hook)
        if isinstance(self.hook, Sequence):
            object.__setattr__(self, "hook", hooks)  # a list may change
        object.__setattr__(self, "interceptors", checked_interceptors(self.interceptors))
        for name in ("partitioner", "address_map"):
            if getattr(self, name) is not None:
                check_callable(getattr(self, name), name)

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None, *, secure: bool = False) -> Self:
        """Read options from `LIFTBRIDGE_…` variables, for example `LIFTBRIDGE_CALL_TIMEOUT=20`.

        The name is the field's in capitals. Numbers only: fields that take objects cannot be set
        this way, `tls` excepted, for which see `TLS.from_env`. A `resubscribe_timeout` of `none`
        tries for ever; `data_lane` is 0 or 1.

        Args:
            environ: the variables; None means the process's environment.
            secure: True if TLS is required anyway, see `TLS.from_env`.

        Raises:
            InvalidRequest: a value is not a number, or is invalid.
        """
        environ = os.environ if environ is None else environ
        values: dict[str, Any] = {"tls": TLS.from_env(environ, secure=secure)}
        for field in fields(cls):
            variable = f"LIFTBRIDGE_{field.name.upper()}"
            text = environ.get(variable)
            if text is None or field.name in _NOT_FROM_ENV:
                continue
            try:
                values[field.name] = _from_text(field.name, text)
            except (KeyError, ValueError):
                wanted = "0 or 1" if field.name == "data_lane" else "a number"
                raise InvalidRequest(f"{variable} must be {wanted}, not {text!r}") from None
        return cls(**values)


_SWITCH: Final = {"0": False, "false": False, "1": True, "true": True}
_NOT_FROM_ENV: Final = frozenset(
    {"backoff", "partitioner", "hook", "interceptors", "address_map", "tls"}
)


def _from_text(name: str, text: str) -> float | int | None:
    if name == "data_lane":
        return _SWITCH[text.strip().lower()]
    if name == "resubscribe_timeout" and text.strip().lower() == "none":
        return None
    return int(text) if name.startswith("max_") else float(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions:
    """Settings of a stream, fixed when it is created. None leaves the server's default.

    Zero is not None: a limit of 0 means "no limit" to the server. Durations are seconds here and
    whole milliseconds on the wire.
    """

    retention_max_bytes: int | None = None
    """Bytes a partition's log may hold before old segments are deleted; 0: no limit."""
    retention_max_messages: int | None = None
    """Messages a partition's log may hold before old segments are deleted; 0: no limit."""
    retention_max_age: Duration | None = None
    """Seconds after which segments are deleted; 0: never."""
    cleaner_interval: Duration | None = None
    """Seconds between runs of the cleaner, which rolls, deletes and compacts segments."""
    segment_max_bytes: int | None = None
    """Bytes of one segment file."""
    segment_max_age: Duration | None = None
    """Seconds after which a new segment is begun; 0: only by size."""
    compact_max_goroutines: int | None = None
    """Concurrency of compaction on the server; only used with `compact_enabled`."""
    compact_enabled: bool | None = None
    """Keep only the newest message of each key."""
    auto_pause_time: Duration | None = None
    """Seconds without messages after which a partition is paused; 0: never."""
    auto_pause_disable_if_subscribers: bool | None = None
    """Do not pause a partition while it has subscribers."""
    min_isr: int | None = None
    """In-sync replicas that are required to commit a message."""
    optimistic_concurrency_control: bool | None = None
    """Check `expected_offset` of publishes; ack policy NONE is refused then."""
    encryption: bool | None = None
    """Encrypt values at rest; needs `LIFTBRIDGE_ENCRYPTION_KEY` on the servers."""

    def __post_init__(self) -> None:
        """Check every field, in particular values that would crash a server.

        Raises:
            InvalidRequest: a value is invalid.
            WrongType: a value has the wrong type.
        """
        for low, high, names in (
            (0, _INT64_MAX, ("retention_max_bytes", "retention_max_messages")),
            (1, _INT64_MAX, ("segment_max_bytes",)),
            (1, _INT32_MAX, ("compact_max_goroutines", "min_isr")),
        ):
            _in_range(self, low, high, *names, or_none=True)
        for name in ("retention_max_age", "segment_max_age", "auto_pause_time"):
            self._check_milliseconds(name, zero=True)
        self._check_milliseconds("cleaner_interval", zero=False)
        for name in (
            "compact_enabled",
            "auto_pause_disable_if_subscribers",
            "optimistic_concurrency_control",
            "encryption",
        ):
            if getattr(self, name) is not None:
                check_flags(**{name: getattr(self, name)})

    def _check_milliseconds(self, name: str, *, zero: bool) -> None:
        value = getattr(self, name)
        if value is None:
            return
        length = seconds(value, name)
        # The wire has milliseconds, and 0 there means "no limit": half a millisecond must not
        # silently turn into that. The server counts in int64 nanoseconds without checks: longer
        # durations overflow to negative ones, and a negative cleaner_interval crashes it.
        if length > _LONGEST or (length == 0 and not zero) or 0 < length < 0.001:
            least = "0, or at least a millisecond" if zero else "at least a millisecond"
            raise InvalidRequest(
                f"{name} must be {least}, and at most {_LONGEST:.0f} seconds, not {value!r}"
            )


OWN_STREAM: Final = StreamOptions(
    retention_max_bytes=0,
    retention_max_messages=0,
    retention_max_age=0,
    compact_enabled=False,
    auto_pause_time=0,
)
"""Settings of the streams that this package needs itself: servers remove nothing from them and
pause none of their partitions, whatever they do with other streams."""


def milliseconds(duration: Duration) -> int:
    """Turn a duration into the whole milliseconds of the wire."""
    return round(seconds(duration) * 1000)
