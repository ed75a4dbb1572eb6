"""Options of a client and of a subscription: frozen, and checked when created."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from liftbridge_aio._core.arguments import (
    INT32_MAX,
    INT64_MAX,
    check_flags,
    check_text,
    check_type,
    check_whole_number,
)
from liftbridge_aio.errors import InvalidRequest
from liftbridge_aio.options import Duration, seconds
from liftbridge_aio.retry import DEFAULT_BACKOFF, Backoff

from .core.names import channel_problem, durable_problem
from .core.start import StartAt

_MIB: Final = 2**20
_LEAST_MAX_OUT: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """Options of a `stan.Client`; their defaults are those of the published guide."""

    connect_timeout: Duration = 5.0
    """Seconds to connect to NATS, for a client that opens the connection itself."""
    request_timeout: Duration = 2.0
    """Seconds for each request to the streaming server: to connect, subscribe, close."""
    ack_timeout: Duration = 30.0
    """Seconds from handing a message to NATS to its ack; then `AckTimeout`."""
    publish_timeout: Duration = 30.0
    """Seconds that a message may wait for room in the window, and for the server while it is away;
    then `PublishTimeout`."""
    close_timeout: Duration = 5.0
    """Seconds that `aclose` waits for acks before it fails what is left."""
    max_in_flight: int = 16_384
    """Publishes that may be unacked at once; more wait."""
    max_in_flight_bytes: int = 64 * _MIB
    """The same limit in bytes."""
    ping_interval: int = 5
    """Seconds between pings, a whole number."""
    ping_max_out: int = 88
    """Pings without an answer after which the session is lost."""
    recover: bool = True
    """Open a new session when one is lost, and create the subscriptions again, durables first."""
    backoff: Backoff = DEFAULT_BACKOFF
    """Waits between attempts to open a new session."""
    discover_prefix: str = "_STAN.discover"
    """Subject of the request to connect, without the cluster id."""

    def __post_init__(self) -> None:
        """Check every field.

        Raises:
            InvalidRequest: a value makes no sense.
            WrongType: a value has the wrong type.
        """
        for name in ("connect_timeout", "request_timeout", "ack_timeout", "publish_timeout"):
            if seconds(getattr(self, name), name) == 0:
                raise InvalidRequest(f"{name} must be longer than 0 seconds")
        seconds(self.close_timeout, "close_timeout")
        for name, least, most in (
            ("max_in_flight", 1, INT64_MAX),
            ("max_in_flight_bytes", 1, INT64_MAX),
            ("ping_interval", 1, INT32_MAX),
            ("ping_max_out", _LEAST_MAX_OUT, INT32_MAX),
        ):
            check_whole_number(getattr(self, name), name, least, most)
        check_flags(recover=self.recover)
        check_type(self.backoff, Backoff, "backoff is a Backoff")
        check_text(self.discover_prefix, "discover_prefix")
        if channel_problem(self.discover_prefix):
            raise InvalidRequest(
                f"discover_prefix is a NATS subject without wildcards, not {self.discover_prefix!r}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionPlan:
    """The channel and the options of a subscription: the arguments of `Client.subscribe`."""

    channel: str
    queue: str = ""
    durable: str = ""
    start: StartAt = field(default_factory=StartAt.new_only)
    manual_ack: bool = False
    ack_wait: int = 30
    """Seconds; the wire carries no parts of them."""
    max_in_flight: int = 1024

    def __post_init__(self) -> None:
        """Check every field.

        Raises:
            InvalidRequest: a value makes no sense.
            WrongType: a value has the wrong type.
        """
        check_channel(self.channel)
        check_text(self.queue, "queue")
        check_text(self.durable, "durable")
        problem = durable_problem(self.durable, self.queue)
        if problem:
            raise InvalidRequest(f"{problem}: {self.durable!r}")
        check_type(self.start, StartAt, "start is made by StartAt")
        check_flags(manual_ack=self.manual_ack)
        check_whole_number(self.ack_wait, "ack_wait, in whole seconds,", 1, INT32_MAX)
        check_whole_number(self.max_in_flight, "max_in_flight", 1, INT32_MAX)


def check_channel(channel: str) -> None:
    """Refuse what is no name of a channel.

    Raises:
        InvalidRequest: servers would not store under this name.
        WrongType: it is no string.
    """
    check_text(channel, "a channel")
    problem = channel_problem(channel)
    if problem:
        raise InvalidRequest(f"{problem}: {channel!r}")


def whole_seconds(duration: Duration, name: str) -> int:
    """Turn a duration into the whole seconds that the wire carries.

    Raises:
        InvalidRequest: it has parts of a second, or is negative.
        WrongType: it is neither a number nor a timedelta.
    """
    value = seconds(duration, name)
    if not value.is_integer():
        raise InvalidRequest(
            f"{name} is a whole number of seconds, as the wire carries no parts, not {duration!r}"
        )
    return int(value)
