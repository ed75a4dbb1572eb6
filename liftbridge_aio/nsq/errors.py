"""The errors of the NSQ client, a tree below `LiftbridgeError`.

NsqError
├── NotConnected (ConnectionFailed)   no connection to nsqd; nothing was sent
├── OutcomeUnknown (PublishOutcomeUnknown)  no response came; it may be stored or not
├── LookupFailed (ConnectionFailed)   no nsqlookupd answered
├── HttpRefused                       nsqd or nsqlookupd refused a request over HTTP
├── BadName (InvalidRequest)          no valid name of a topic or channel
├── CommandRefused                    nsqd answered a command with an error, whose code it has
│   ├── NotInFlight                   the message is not in flight any more
│   └── Unauthorized                  a secret is missing, or forbids the command
├── AlreadyAnswered (UsageError)      the message was finished or requeued before
├── Closed (UsageError)       the consumer or producer is closed, or was never entered
└── ProtocolError (MalformedData)     bytes that are not NSQ's
"""

from __future__ import annotations

from liftbridge_aio.errors import (
    ConnectionFailed,
    InvalidRequest,
    LiftbridgeError,
    MalformedData,
    PublishOutcomeUnknown,
    UsageError,
)


class NsqError(LiftbridgeError):
    """Root of the errors of the NSQ client."""


class NotConnected(NsqError, ConnectionFailed):
    """There is no connection to nsqd. What was to be sent is not stored."""

    hint = "check the address and that nsqd runs"


class OutcomeUnknown(NsqError, PublishOutcomeUnknown):
    """The publish was sent and no response came, so it may be stored or not."""

    hint = "publish again if a duplicate does less harm than a loss"


class LookupFailed(NsqError, ConnectionFailed):
    """No nsqlookupd answered."""

    hint = "check the addresses (http://host:4161) and that nsqlookupd runs"


class HttpRefused(NsqError):
    """The daemon nsqd or nsqlookupd refused a request over HTTP."""

    status: int = 0
    """The HTTP status."""
    reason: str = ""
    """Its reason, for example `TOPIC_NOT_FOUND`."""


class BadName(NsqError, InvalidRequest):
    """The name of a topic or channel is invalid; nothing was sent."""

    hint = "use 1 to 64 of the characters . a-z A-Z 0-9 _ -, and #ephemeral at the end if wanted"


class CommandRefused(NsqError):
    """The server nsqd answered a command with an error."""

    code: str = "E_INVALID"
    """The error code, for example `E_BAD_TOPIC`."""


class NotInFlight(CommandRefused):
    """The message is not in flight on this connection any more, so it is delivered again."""

    hint = "answer messages within msg_timeout, or touch() them in time"


class Unauthorized(CommandRefused):
    """The authorisation server of nsqd forbids the command, or requires a secret."""

    hint = "check auth_secret, and what the authorisation server allows it"


class AlreadyAnswered(NsqError, UsageError):
    """The message was finished or requeued before; nothing was sent."""

    hint = "answer each message once; `run` finishes it when its handler returns"


class Closed(NsqError, UsageError):
    """The consumer or producer is closed, or was never entered."""

    hint = "use it in its `async with` block"


class ProtocolError(NsqError, MalformedData):
    """The server sent bytes that are not NSQ's protocol."""

    hint = "check that this is the TCP port of nsqd (4150 by default), not its HTTP port"
