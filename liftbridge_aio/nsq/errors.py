"""The errors of the NSQ client: a tree below `LiftbridgeError`.

NsqError
├── NotConnected        no connection to nsqd, or it broke before the response
├── BadName (InvalidRequest)  no valid name of a topic or channel
├── CommandRefused      nsqd answered with an error, whose code it has
│   ├── NotInFlight     FIN, REQ or TOUCH of a message that is not in flight any more
│   └── Unauthorized    nsqd's authorisation server forbids it, or a secret is missing
└── ProtocolError (MalformedData)  bytes that are not NSQ's
"""

from __future__ import annotations

from liftbridge_aio.errors import InvalidRequest, LiftbridgeError, MalformedData


class NsqError(LiftbridgeError):
    """Root of the errors of the NSQ client."""


class NotConnected(NsqError):
    """There is no connection to nsqd, or it broke before the response came."""

    hint = "check the address and that nsqd runs; a publish may be stored or not"


class BadName(NsqError, InvalidRequest):
    """The name of a topic or channel is invalid; nothing was sent."""

    hint = "use 1 to 64 of the characters . a-z A-Z 0-9 _ -, and #ephemeral at the end if wanted"


class CommandRefused(NsqError):
    """Nsqd answered a command with an error."""

    code: str = "E_INVALID"
    """The error code, for example `E_BAD_TOPIC`."""


class NotInFlight(CommandRefused):
    """The message is not in flight on this connection any more, so it is delivered again."""

    hint = "finish messages within msg_timeout, or touch() them in time"


class Unauthorized(CommandRefused):
    """The authorisation server of nsqd forbids the command, or requires a secret."""

    hint = "check auth_secret, and what the authorisation server allows it"


class ProtocolError(NsqError, MalformedData):
    """The server sent bytes that are not NSQ's protocol."""

    hint = "check that this is the TCP port of nsqd (4150 by default), not its HTTP port"
