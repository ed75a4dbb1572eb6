"""Errors of the client of NATS Streaming; it raises others of `liftbridge_aio.errors` too.

LiftbridgeError
├── ConnectionFailed
│   ├── NoStreamingServer (TimeoutError)  nobody answered the request to connect
│   └── SessionLost                       the server does not know the session, or is away
├── RequestTimeout (TimeoutError)
│   ├── SubscribeTimeout                  no answer; the server was asked to forget it
│   ├── UnsubscribeTimeout                the subscription may be closed or not
│   └── CloseTimeout                      the session may be closed or not
├── ServerError
│   ├── StreamingError                    an error of the server; `text` has its words
│   │   └── ClientIdTaken                 another client with this id is connected
│   └── PermissionDenied
│       └── RequestNotPermitted           NATS does not let the user send this request
├── PublishError
│   └── PublishNotSent
│       └── PublishNotPermitted           NATS does not let the user publish to the channel
└── UsageError (RuntimeError)
    ├── SubscriptionClosed                the subscription is closed or was never opened
    ├── AckedAutomatically                ack() without manual_ack
    └── NotSupported                      the protocol has no such request

"""

from __future__ import annotations

from liftbridge_aio.errors import (
    ConnectionFailed,
    PermissionDenied,
    PublishNotSent,
    RequestTimeout,
    ServerError,
    UsageError,
)


class NoStreamingServer(ConnectionFailed, TimeoutError):
    """NATS answers, but no NATS Streaming server of this cluster does."""

    hint = "check the cluster id and discover_prefix, and that the streaming server runs"


class SessionLost(ConnectionFailed):
    """The server does not know the session any more, or has not answered pings for too long.

    Either another client with the same id has replaced this one, or the server was started without
    what it had in memory, or it is away.
    """

    hint = "connect again, or leave `recover` on and the client does"


class SubscribeTimeout(RequestTimeout):
    """The server did not answer the request to subscribe; it was asked to forget it."""

    hint = "subscribe again"


class UnsubscribeTimeout(RequestTimeout):
    """The server did not answer the request to close a subscription or to unsubscribe."""

    hint = "call it again; no message is delivered in any case"


class CloseTimeout(RequestTimeout):
    """The server did not answer the request to close the session."""

    hint = "nothing is left open here; the server removes a client that answers no heartbeats"


class StreamingError(ServerError):
    """The server answered a request with an error."""

    text: str = ""
    """The server's own words."""


class ClientIdTaken(StreamingError):
    """Another client with this id is connected, and answers the server."""

    hint = "give each client an id of its own; one that has crashed is replaced"


class RequestNotPermitted(PermissionDenied):
    """NATS does not let this user send requests to the streaming server."""

    hint = "the user must be permitted to publish to this subject"


class PublishNotPermitted(PublishNotSent):
    """NATS does not let this user publish to the channel; the message is certainly not stored."""

    hint = "the user must be permitted to publish to this subject"


class SubscriptionClosed(UsageError):
    """The subscription is closed, or was never opened."""

    hint = "use `async with client.subscribe(...)`; a closed subscription stays closed"


class NotSupported(UsageError):
    """The protocol of NATS Streaming has no such request; nothing was sent."""


class AckedAutomatically(UsageError):
    """The subscription acks its messages automatically."""

    hint = "subscribe with manual_ack=True to ack by hand"
