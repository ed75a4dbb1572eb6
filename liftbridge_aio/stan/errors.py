"""Errors of the client of NATS Streaming; others are those of `liftbridge_aio.errors`.

LiftbridgeError
├── ConnectionFailed
│   ├── NoStreamingServer (TimeoutError)      nobody answered the request to connect
│   └── SessionLost                           the server does not know the session, or is away
├── RequestTimeout
│   ├── SubscribeTimeout                      the subscription may exist or not
│   ├── UnsubscribeTimeout                    the subscription may be closed or not
│   └── CloseTimeout                          the session may be closed or not
├── ServerError
│   ├── StreamingError                        an error of the server; `text` is its own
│   │   └── ClientIdTaken                     another client with this id is connected
│   └── UnsupportedByServer                   the server is too old for this call
├── PublishError
│   ├── PublishRefused                        the server did not store the message
│   └── PublishNotSent
│       └── PublishNotPermitted               NATS does not let the client publish this
└── UsageError
    ├── SubscriptionClosed                    the subscription is closed
    └── AckedAutomatically                    ack() without manual_ack

"""

from __future__ import annotations

from liftbridge_aio.errors import (
    ConnectionFailed,
    PublishNotSent,
    RequestTimeout,
    ServerError,
    UsageError,
)


class NoStreamingServer(ConnectionFailed, TimeoutError):
    """NATS answers, but no NATS Streaming server of this cluster does."""

    hint = "check the cluster id and discover_prefix, and that the streaming server runs"


class SessionLost(ConnectionFailed):
    """The server does not know the session any more, or has not answered any ping for too long.

    Either another client with the same id has replaced this one, or the server was started without
    what it had in memory.
    """

    hint = "publishes that were not acked may be stored or not; see `ClientOptions.recover`"


class SubscribeTimeout(RequestTimeout):
    """The server did not answer the request to subscribe; it was asked to forget it."""


class UnsubscribeTimeout(RequestTimeout):
    """The server did not answer the request to close a subscription or to unsubscribe."""

    hint = "call it again; the messages stop in any case"


class CloseTimeout(RequestTimeout):
    """The server did not answer the request to close the session."""

    hint = "the server removes the client when heartbeats stay unanswered"


class StreamingError(ServerError):
    """The server answered a request with an error."""

    text: str = ""
    """The server's own words."""


class ClientIdTaken(StreamingError):
    """Another client with this id is connected, and answers the server."""

    hint = "give each client an id of its own; one that crashed is replaced at once"


class PublishNotPermitted(PublishNotSent):
    """NATS does not let this user publish to the channel; it is certainly not stored."""

    hint = "give the user the permission to publish to this subject"


class SubscriptionClosed(UsageError):
    """The subscription is closed, or was never opened."""

    hint = "use `async with client.subscribe(...)`"


class AckedAutomatically(UsageError):
    """The subscription acks messages itself."""

    hint = "subscribe with manual_ack=True to ack by hand"
