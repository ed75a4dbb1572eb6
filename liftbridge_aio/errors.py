"""Everything this package raises, as one tree.

    LiftbridgeError
    ├── InvalidRequest (ValueError)       refused before sending, or by the server as invalid
    │   ├── WrongType (TypeError)         an argument of the wrong type
    │   ├── MessageTooLarge               larger than client or server allow
    │   ├── StreamReserved                an internal stream, which only servers change
    │   └── DuplicateCorrelationId        the same id is already in flight
    ├── MalformedData (ValueError)        bytes that are not in the expected format
    │   └── UndecodableMessage            a value that its reader cannot decode
    ├── UsageError (RuntimeError)         a valid call at the wrong time
    │   ├── ClientClosed                  the client is closed or was never connected
    │   └── ConcurrentRead                two readers on one subscription
    ├── CallbackCancelled                 a handler or callback was cancelled by something else
    ├── ConnectionFailed                  no server could be reached, or the connection was lost
    │   ├── ConnectTimeout (TimeoutError) no server could be reached in time
    │   ├── NotLiftbridge                 something else answers at that address
    │   └── TLSFailed                     the TLS handshake failed
    │       ├── ServerNotTrusted          the server's certificate was not accepted
    │       └── ClientNotTrusted          the server requires a certificate, or another one
    ├── RequestTimeout (TimeoutError)     a call took longer than its timeout
    ├── ServerError                       an error of the server without a class of its own
    │   ├── NoMetadataLeader              the cluster is electing its metadata leader
    │   ├── NotPartitionLeader            the called broker does not lead the partition
    │   ├── CursorsUnavailable            the server keeps no cursors, or failed to store one
    │   ├── ActivityUnavailable           the servers keep no activity stream
    │   ├── EncryptionFailed              the server has no usable encryption key
    │   ├── PermissionDenied              the server's policy forbids the call
    │   └── UnsupportedByServer           the server is too old for this call
    ├── StreamExists                      a stream of this name exists
    ├── NotFound
    │   ├── StreamNotFound
    │   ├── PartitionNotFound
    │   └── StreamDeleted                 deleted while it was read
    ├── PartitionReadonly                 publishing to a read-only partition
    ├── PartitionPaused                   reading a paused partition
    ├── PublishError
    │   ├── PublishOutcomeUnknown         it may be stored or not
    │   │   └── AckTimeout (TimeoutError) no ack in time
    │   ├── PublishNotSent                certainly not stored
    │   │   └── PublishTimeout (TimeoutError)  no room or no connection in time
    │   ├── IncorrectOffset               the expected offset was not the next one
    │   ├── PublishRefused                any other refusal by the server
    │   └── PublishManyFailed             some of many; has the outcome of each
    ├── SubscriptionError
    │   ├── SubscriptionLost (TimeoutError)  could not be resumed in time
    │   ├── StreamReset                   the log was truncated or created again
    │   └── PartitionTaken                another member of the consumer group reads it
    └── GroupError                        of consumer groups
        ├── AlreadyMember                 a member with this id is in the group
        ├── NotGroupMember                this member is out of the group, or may be
        └── NoCommittedPosition           no position to start from

Each names the stream, partition and offset as far as they are known, and says what to do. The
original exception is the `__cause__`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from . import model
    from .model import Ack


class LiftbridgeError(Exception):
    """Root of the tree: catch this to catch everything that this package raises."""

    hint: str = ""
    """Advice; part of the text."""

    def __init__(
        self,
        message: str,
        *,
        stream: str | None = None,
        partition: int | None = None,
        offset: int | None = None,
    ) -> None:
        """Store the message and the stream, partition and offset."""
        super().__init__(message)
        self.message = message
        self.stream = stream
        self.partition = partition
        self.offset = offset

    @property
    def where(self) -> str:
        """Stream, partition and offset as far as they are known."""
        parts = [
            f"{name}={value!r}"
            for name, value in (
                ("stream", self.stream),
                ("partition", self.partition),
                ("offset", self.offset),
            )
            if value is not None
        ]
        return ", ".join(parts)

    def __str__(self) -> str:
        """Say what happened, where, and what to do."""
        text = f"{self.message} [{self.where}]" if self.where else self.message
        return f"{text}: {self.hint}" if self.hint else text

    def __reduce__(self) -> tuple[Any, ...]:
        """Support pickling, attributes included."""
        return _rebuild, (type(self), self.__dict__.copy())

    def at(
        self, stream: str | None = None, partition: int | None = None, offset: int | None = None
    ) -> Self:
        """Set stream, partition and offset if they are not set, and return the same exception."""
        if self.stream is None:
            self.stream = stream
        if self.partition is None:
            self.partition = partition
        if self.offset is None:
            self.offset = offset
        return self


def _rebuild(cls: type[LiftbridgeError], state: dict[str, Any]) -> LiftbridgeError:
    error = cls.__new__(cls)
    Exception.__init__(error, state["message"])
    error.__dict__.update(state)
    return error


class InvalidRequest(LiftbridgeError, ValueError):
    """The request is invalid; nothing was sent, or the server refused it."""


class WrongType(InvalidRequest, TypeError):
    """An argument has the wrong type; nothing was sent."""


class MessageTooLarge(InvalidRequest):
    """The message is larger than the client's or the server's limit; it was not stored."""

    hint = "split it, compress it, or raise the limit here and on the server"


class StreamReserved(InvalidRequest):
    """Internal streams are created, written and deleted by the server alone."""

    hint = "choose another name"


class DuplicateCorrelationId(InvalidRequest):
    """A publish with this correlation id is in flight."""

    hint = "leave the id out, or make it unique among the publishes in flight"


class MalformedData(LiftbridgeError, ValueError):
    """Bytes that are not a valid envelope, frame or message of the expected kind."""


class UndecodableMessage(MalformedData):
    """The value of a message cannot be decoded by its reader; `__cause__` says why.

    Only this message is affected: the next read returns the one after it.
    """

    hint = "read on after it, or set on_undecodable= to skip such messages or deliver them raw"
    received: model.Message | None = None
    """The message as it is on the log."""


class UsageError(LiftbridgeError, RuntimeError):
    """The call is valid, but not at this time."""


class ClientClosed(UsageError):
    """The client is closed, or was never connected."""

    hint = "use `async with Client(...)`, or call connect() first; a closed client stays closed"


class ConcurrentRead(UsageError):
    """Another task is already waiting for the next message of this subscription."""

    hint = "give each task a subscription of its own"


class CallbackCancelled(LiftbridgeError):
    """A handler or callback ended with a `CancelledError` that nobody had asked its task for.

    Something that it awaited was cancelled: a future that others share, or a client that was shut
    down. It counts as a failure of the handler or callback.
    """

    hint = "find out what it awaited, and catch CancelledError there or shield the future"


class ConnectionFailed(LiftbridgeError):
    """No server could be reached, or the connection broke during the call."""

    hint = "check the addresses and that the servers run"
    reached_server: bool = False
    """True if a request was sent, so that the server may have acted on it."""


class ConnectTimeout(ConnectionFailed, TimeoutError):
    """No server could be reached before the time of the call was up."""


class NotLiftbridge(ConnectionFailed):
    """The server at this address is not a Liftbridge server."""

    hint = (
        "check that this is the port of the Liftbridge API (9292 by default), that client and"
        " server agree on TLS, and that proxies in between forward gRPC"
    )


class TLSFailed(ConnectionFailed):
    """The TLS handshake failed; nothing was sent, and a retry will not help.

    One side uses TLS and the other does not, or a file of the client cannot be used.
    """

    hint = "switch TLS on here if the servers have it, and off if not; check the files of TLS(...)"


class ServerNotTrusted(TLSFailed):
    """The server's certificate was not accepted; nothing was sent."""

    hint = (
        "check that this is the right server, that ca has the authority that signed its "
        "certificate, the dates of both, and server_name if its name is not that of the address"
    )


class ClientNotTrusted(TLSFailed):
    """The server requires a client certificate, or another one; no request was processed."""

    hint = (
        "give TLS(cert=..., key=...) of an authority in the server's tls.client.auth.ca, "
        "and check their dates"
    )


class RequestTimeout(LiftbridgeError, TimeoutError):
    """The call took longer than its timeout; the server may have acted on it or not."""


class ServerError(LiftbridgeError):
    """An error of the server without a class of its own."""

    code: str = "UNKNOWN"
    """Name of the gRPC status code."""


class NoMetadataLeader(ServerError):
    """The cluster is electing its metadata leader."""

    hint = "try again in a moment"


class NotPartitionLeader(ServerError):
    """The called broker does not lead the partition, though fresh metadata says so."""

    hint = "try again in a moment; a new leader may just be taking over"


class CursorsUnavailable(ServerError):
    """The server keeps no cursors, or could not read or store this one."""

    hint = (
        "try again in a moment; if the server keeps no cursors at all, "
        "set cursors.stream.partitions above 0 on every server"
    )


class ActivityUnavailable(ServerError):
    """The servers keep no activity stream."""

    hint = "set activity.stream.enabled to true on every server"


class EncryptionFailed(ServerError):
    """The server could not encrypt or decrypt."""

    hint = "set LIFTBRIDGE_ENCRYPTION_KEY to 16 or 32 bytes on every server"


class PermissionDenied(ServerError):
    """The server's policy forbids this call to the client; it is not retried.

    A denied publish may be stored all the same: v1.9.0 stores what it denies.
    """

    hint = (
        "the policy of each server must allow it to the common name of the client's certificate: "
        "p, <name>, <stream, or * for metadata>, <method>"
    )


class UnsupportedByServer(ServerError):
    """The server is too old for this call."""


class StreamExists(LiftbridgeError):
    """A stream of this name exists."""

    hint = "pass exist_ok=True if that is fine"


class NotFound(LiftbridgeError):
    """The requested object does not exist."""


class StreamNotFound(NotFound):
    """No such stream."""

    hint = "create it first"


class PartitionNotFound(NotFound):
    """The stream, or this partition of it, does not exist."""


class StreamDeleted(NotFound):
    """The stream was deleted while it was in use."""


class PartitionReadonly(LiftbridgeError):
    """The partition is read-only: nothing can be published to it."""

    hint = "set_stream_readonly(..., readonly=False) opens it again"


class PartitionPaused(LiftbridgeError):
    """The partition is paused and cannot be read."""

    hint = "publish to it, call resume_stream, or read with unpause=True"


class PublishError(LiftbridgeError):
    """A publish that did not end in an ack."""

    correlation_id: str = ""


class PublishOutcomeUnknown(PublishError):
    """The message was sent but not acked: it may be stored or not."""

    hint = (
        "look for it before you send it again, use expected_offset with retry=, "
        "or make repeats harmless"
    )


class AckTimeout(PublishOutcomeUnknown, TimeoutError):
    """No ack came within ack_timeout."""


class PublishNotSent(PublishError):
    """The message never left this process: it is certainly not stored."""

    hint = "it is safe to publish it again"


class PublishTimeout(PublishNotSent, TimeoutError):
    """No room in the in-flight window, or no connection to a server, within the timeout."""


class IncorrectOffset(PublishError):
    """The partition's next offset was not the expected one; the message was not stored."""

    hint = "another publish came first, or the offset is not reached yet: read on and decide again"


class PublishRefused(PublishError):
    """The server refused the message."""

    code: str = "UNKNOWN"
    """Name of the code in the server's answer."""


class PublishManyFailed(PublishError):
    """Of several messages some were not acked.

    `outcomes` has an Ack (None with ack policy NONE) or an exception for each, in order.
    """

    hint = "look at outcomes: those that are exceptions are not acked"
    outcomes: Sequence[Ack | BaseException | None] = ()


class SubscriptionError(LiftbridgeError):
    """A subscription ended with an error."""


class SubscriptionLost(SubscriptionError, TimeoutError):
    """The subscription broke and could not be resumed within resubscribe_timeout.

    Everything up to `offset` (`last_offset`) was delivered.
    """

    hint = "subscribe again at last_offset + 1"

    @property
    def last_offset(self) -> int | None:
        """The last offset that was delivered; None if there was none."""
        return self.offset


class StreamReset(SubscriptionError):
    """The log is no longer the one that was read: it was truncated, or created again.

    `offset` is the first offset at which the logs differ.
    """

    hint = "decide where to go on; offsets seen so far mean nothing in the new log"


class PartitionTaken(SubscriptionError):
    """Another member of the consumer group has taken over the partition.

    The group handles this; users see it as the error in `PartitionBlocked` events.
    """


class GroupError(LiftbridgeError):
    """A member of a consumer group cannot continue, or not yet."""


class AlreadyMember(GroupError):
    """A member with this consumer id is in the group."""

    hint = (
        "give each member an id of its own, or none; one that crashed is expelled when the "
        "server's groups.consumer.timeout is over"
    )


class NotGroupMember(GroupError):
    """This member is not in the group, or cannot be sure that it is, so it may not commit."""

    hint = "it rejoins automatically; uncommitted messages are delivered again to the next owner"


class NoCommittedPosition(GroupError):
    """The group has no committed position for this partition, and start=None requires one."""

    hint = "set the cursor, or pass start="
