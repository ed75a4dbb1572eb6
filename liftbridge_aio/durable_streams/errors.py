"""The errors of the Durable Streams client, a tree below `LiftbridgeError`.

DurableStreamError
├── NotConnected (ConnectionFailed)   no connection, or it was lost; nothing was appended
│   └── HandshakeFailed (TLSFailed)   the TLS handshake failed
├── TimedOut (RequestTimeout)         no answer in time; nothing was appended
├── OutcomeUnknown (PublishOutcomeUnknown)  an append was sent and not answered
├── Refused                           the server refused the request; has its HTTP status
│   ├── BadRequest (InvalidRequest)   400, as invalid
│   │   └── InvalidOffset             400 for a read: the offset is not one of this stream
│   ├── NoStream (NotFound)           404
│   │   └── Gone                      410: deleted, or the offset is no longer kept
│   ├── Conflict                      409: another configuration or content type
│   │   ├── SequenceConflict          `seq` is not above the last one
│   │   ├── StreamClosed              nothing can be appended any more
│   │   └── SequenceGap               the server lacks earlier batches of the producer
│   ├── StaleEpoch                    403: a producer with a higher epoch took over
│   ├── TooLarge (MessageTooLarge)    413
│   ├── NotSupported (UnsupportedByServer)  405 or 501
│   └── UnexpectedStatus              any other, or still one that is retried
├── StreamReset (StreamReset)         the stream ends before the reader's offset
├── NotStored (PublishNotSent)        a batch after one that failed
├── ProtocolError (MalformedData)     the server sent what the protocol does not allow
└── Closed (UsageError)               the stream or producer is closed, or was never entered

Arguments are refused with `InvalidRequest`.
"""

from __future__ import annotations

from typing import ClassVar

from liftbridge_aio import errors
from liftbridge_aio.errors import (
    ConnectionFailed,
    InvalidRequest,
    LiftbridgeError,
    MalformedData,
    MessageTooLarge,
    NotFound,
    PublishNotSent,
    PublishOutcomeUnknown,
    RequestTimeout,
    TLSFailed,
    UnsupportedByServer,
    UsageError,
)


class DurableStreamError(LiftbridgeError):
    """Root of the errors of the Durable Streams client."""

    conformance_code: ClassVar[str] = "INTERNAL_ERROR"
    """The code of this error in the protocol of the conformance tests."""


class NotConnected(DurableStreamError, ConnectionFailed):
    """There is no connection to the server, or it was lost; nothing was appended."""

    conformance_code = "NETWORK_ERROR"
    hint = "check the URL and that the server runs"


class HandshakeFailed(NotConnected, TLSFailed):
    """The TLS handshake failed; nothing was sent, and a retry will not help."""

    hint = "check that the server has TLS, its certificate, and the authorities in `tls`"


class TimedOut(DurableStreamError, RequestTimeout):
    """The call took longer than its timeout; nothing was appended."""

    conformance_code = "TIMEOUT"


class OutcomeUnknown(DurableStreamError, PublishOutcomeUnknown):
    """An append was sent and no answer came, so it may be stored or not."""

    conformance_code = "NETWORK_ERROR"
    hint = (
        "append again if a duplicate does less harm than a loss; an IdempotentProducer repeats"
        " safely"
    )


class Refused(DurableStreamError):
    """The server refused the request."""

    conformance_code = "UNEXPECTED_STATUS"
    status: int = 0
    """The HTTP status."""


class BadRequest(Refused, InvalidRequest):
    """The server refused the request as invalid (400)."""


class InvalidOffset(BadRequest):
    """The server does not accept the offset (400)."""

    conformance_code = "INVALID_OFFSET"
    hint = "pass START, NOW, or an offset that this stream returned"


class NoStream(Refused, NotFound):
    """There is no stream at this URL (404)."""

    conformance_code = "NOT_FOUND"
    hint = "create it first; it may have expired"


class Gone(NoStream):
    """The stream was deleted and has forks, or the data at the offset is not kept (410)."""

    hint = "read from START, or read a fork"


class Conflict(Refused):
    """The stream exists with another configuration, or has another content type (409)."""

    conformance_code = "CONFLICT"


class SequenceConflict(Conflict):
    """The `seq` of the append is not above that of the append before (409); nothing was stored."""

    conformance_code = "SEQUENCE_CONFLICT"


class StreamClosed(Conflict):
    """The stream is closed (409); nothing was stored, and nothing can be any more."""

    conformance_code = "STREAM_CLOSED"
    final_offset: str | None = None
    """The offset after its last item."""


class SequenceGap(Conflict):
    """The server lacks batches of this producer that it had accepted (409); this one is not stored.

    It has lost data, or the state of producers.
    """

    conformance_code = "SEQUENCE_CONFLICT"
    hint = "find out what the stream holds, then restart() the producer"
    expected: int | None = None
    """The sequence number that the server expects."""
    received: int | None = None
    """The one that it was sent."""


class StaleEpoch(Refused):
    """Another producer with this id and a higher epoch has taken over (403); it is not stored."""

    hint = "stop, or start a producer with a higher epoch if this one should take over"
    current_epoch: int | None = None
    """The epoch that the server knows."""


class TooLarge(Refused, MessageTooLarge):
    """The body is larger than the server allows (413); nothing was stored."""

    hint = "split it, or lower max_batch_bytes"


class NotSupported(Refused, UnsupportedByServer):
    """The server does not do this for this stream (405 or 501)."""

    conformance_code = "NOT_SUPPORTED"


class UnexpectedStatus(Refused):
    """The server answered with a status that has no class of its own."""


class StreamReset(DurableStreamError, errors.StreamReset):
    """The stream ends before the offset of the reader: it lost data, or was created again."""

    conformance_code = "INVALID_OFFSET"
    hint = "find out which, and read from START if it is another stream"


class NotStored(DurableStreamError, PublishNotSent):
    """A message of a producer is not stored, as one before it failed, which is the `__cause__`."""

    hint = "restart() the producer, and append it again"


class ProtocolError(DurableStreamError, MalformedData):
    """The server sent what the protocol does not allow."""

    conformance_code = "PARSE_ERROR"
    hint = "check that this is the URL of a stream, and that no proxy changes responses"


class Closed(DurableStreamError, UsageError):
    """The stream or producer is closed, or was never entered."""

    hint = "use it in its `async with` block"
