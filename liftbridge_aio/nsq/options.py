"""Options of connections and consumers: frozen, and checked when created."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from typing import Final, Literal

from liftbridge_aio._core.arguments import (
    INT32_MAX,
    check_flags,
    check_number,
    check_text,
    check_type,
    check_whole_number,
)
from liftbridge_aio.errors import InvalidRequest
from liftbridge_aio.options import Duration, seconds
from liftbridge_aio.tls import check_string

_MIB: Final = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionOptions:
    """Options of a connection to nsqd; durations in seconds.

    What nsqd is asked for at IDENTIFY is checked by it: a value out of its range ends the
    connection with `CommandRefused`.
    """

    client_id: str = ""
    """Names this client in nsqadmin and statistics; "": the first part of the host's name."""
    user_agent: str = "liftbridge-aio"
    """Names the library."""
    connect_timeout: Duration = 5.0
    """For connecting, TLS and negotiation together."""
    heartbeat_interval: Duration = 30.0
    """Interval of nsqd's heartbeats, 1 to 60. After three without anything received, the
    connection counts as lost."""
    tls: ssl.SSLContext | None = None
    """Require TLS, with this context. If nsqd does not offer it, there is no connection."""
    deflate_level: int = 0
    """Compress with deflate at this level, 1 to 9, if nsqd offers it; 0: off."""
    snappy: bool = False
    """Compress with snappy if nsqd offers it; needs the extra `nsq`."""
    auth_secret: str | None = field(default=None, repr=False)
    """Secret for nsqd's authorisation server."""
    output_buffer_bytes: int | None = None
    """Buffer of nsqd for messages, 64 to 65,536; 0: none; None: nsqd's default, 16,384."""
    output_buffer_timeout: Duration | None = None
    """Longest time that nsqd keeps messages in that buffer, 0.025 to 30; 0: only a full buffer is
    sent; None: nsqd's default, 0.25."""
    sample_rate: int = 0
    """Deliver about so many percent of the messages, 1 to 99; nsqd discards the others from the
    channel. 0: all."""
    msg_timeout: Duration | None = None
    """Time after which an unanswered message is delivered again, from 1; None: nsqd's default."""
    max_message_bytes: int = 16 * _MIB
    """Largest body that is accepted; a larger frame ends the connection."""

    def __post_init__(self) -> None:
        """Check every field.

        Raises:
            InvalidRequest: a value is invalid.
            WrongType: a value has the wrong type.
        """
        _check_longer_than_zero(self, "connect_timeout", "heartbeat_interval")
        for name in ("output_buffer_timeout", "msg_timeout"):
            if getattr(self, name) is not None:
                seconds(getattr(self, name), name)
        for name in ("client_id", "user_agent"):
            check_text(getattr(self, name), name)
        check_string(self.auth_secret, "auth_secret")
        if self.tls is not None:
            check_type(self.tls, ssl.SSLContext, "tls must be an ssl.SSLContext")
        check_flags(snappy=self.snappy)
        check_whole_number(self.deflate_level, "deflate_level", 0, 9)
        check_whole_number(self.sample_rate, "sample_rate", 0, 99)
        check_whole_number(self.max_message_bytes, "max_message_bytes", 1, INT32_MAX - 64)
        if self.output_buffer_bytes is not None:
            check_whole_number(self.output_buffer_bytes, "output_buffer_bytes", 0, INT32_MAX)
        if self.snappy and self.deflate_level:
            raise InvalidRequest("nsqd compresses with deflate or with snappy, not with both")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions(ConnectionOptions):
    """Options of a consumer and its connections; durations in seconds.

    Defaults are those of go-nsq, except where the published guide says otherwise.
    """

    max_attempts: int = 5
    """Attempts to handle a message; it is given up when nsqd delivers it once more. 0: no limit."""
    requeue_delay: Duration = 90.0
    """Delay of a requeued message, times its attempts."""
    max_requeue_delay: Duration = 900.0
    """The longest such delay."""
    max_backoff: Duration = 120.0
    """The longest pause after failures; 0: failures do not slow the consumer down."""
    backoff_unit: Duration = 1.0
    """A pause takes this, times 2 to the power of the failures that successes have not made up
    for."""
    backoff_strategy: Literal["exponential", "full_jitter"] = "exponential"
    """"full_jitter": a random part of that pause."""
    backoff_on_refusal: bool = False
    """Count an answer that nsqd refuses, most often because it is late, as a failure."""
    probe_first: bool = True
    """Ask a new connection for one message first, as the guide has it, and for its share after
    that. False: for its share at once, as go-nsq does."""
    redistribute_interval: Duration = 5.0
    """Interval at which connections without messages give up their share, where there are more
    connections than messages in flight."""
    idle_timeout: Duration = 10.0
    """Time without a message after which a connection gives up its share."""
    hold_timeout: Duration = 30.0
    """Time after which any connection gives up its share, so that others get theirs."""
    reconnect_wait: Duration = 8.0
    """Time before an nsqd that was named is connected again; doubled with each failure."""
    max_reconnect_wait: Duration = 300.0
    """The longest such time."""
    lookup_interval: Duration = 60.0
    """Interval of queries of nsqlookupd."""
    lookup_jitter: float = 0.3
    """The random part of waits for lookups and connections, 0 to 1, so that not all consumers
    come at once."""
    lookup_timeout: Duration = 10.0
    """For a query of an nsqlookupd."""

    def __post_init__(self) -> None:
        """Check every field.

        Raises:
            InvalidRequest: a value is invalid.
            WrongType: a value has the wrong type.
        """
        ConnectionOptions.__post_init__(self)
        _check_longer_than_zero(
            self, "redistribute_interval", "reconnect_wait", "lookup_interval", "lookup_timeout"
        )
        for name in _CONSUMER_DURATIONS:
            seconds(getattr(self, name), name)
        check_whole_number(self.max_attempts, "max_attempts", 0, 65_535)
        check_flags(probe_first=self.probe_first, backoff_on_refusal=self.backoff_on_refusal)
        check_number(self.lookup_jitter, "lookup_jitter")
        if not 0 <= self.lookup_jitter <= 1:
            raise InvalidRequest(f"lookup_jitter must be from 0 to 1, not {self.lookup_jitter}")
        if self.backoff_strategy not in {"exponential", "full_jitter"}:
            raise InvalidRequest(
                f"backoff_strategy is 'exponential' or 'full_jitter', not {self.backoff_strategy!r}"
            )


_CONSUMER_DURATIONS: Final = (
    "requeue_delay",
    "max_requeue_delay",
    "max_backoff",
    "backoff_unit",
    "idle_timeout",
    "hold_timeout",
    "max_reconnect_wait",
)


def _check_longer_than_zero(options: ConnectionOptions, *names: str) -> None:
    for name in names:
        if seconds(getattr(options, name), name) == 0:
            raise InvalidRequest(f"{name} must be longer than 0 seconds")
