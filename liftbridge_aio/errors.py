"""Everything this package raises, as one tree.

    LiftbridgeError
    ├── InvalidRequest (ValueError)       refused before sending, or by the server as invalid
    │   ├── WrongType (TypeError)         an argument of the wrong type
    │   ├── MessageTooLarge               larger than client or server allow
    │   ├── StreamReserved                an internal stream that nobody may create or delete
    │   └── DuplicateCorrelationId        the same id is already in flight
    ├── MalformedData (ValueError)        bytes that are not what they should be
    │   └── UndecodableMessage            a value that is not what its reader expects
    ├── UsageError (RuntimeError)         the right call at the wrong time
    │   ├── ClientClosed                  the client is closed or was never connected
    │   └── ConcurrentRead                two readers on one subscription
    ├── ConnectionFailed                  no server could be reached, or the link was lost
    │   ├── ConnectTimeout (TimeoutError) no server could be reached in time
    │   ├── NotLiftbridge                 something else answers at that address
    │   └── TLSFailed                     TLS could not be agreed upon
    │       ├── ServerNotTrusted          the server does not prove that it is the right one
    │       └── ClientNotTrusted          the server wants a certificate, or another one
    ├── RequestTimeout (TimeoutError)     a call took longer than its timeout
    ├── ServerError                       an answer of the server that has no type of its own
    │   ├── NoMetadataLeader              the cluster is choosing its metadata leader
    │   ├── NotPartitionLeader            asked a broker that does not lead the partition
    │   ├── CursorsUnavailable            the server keeps no cursors, or failed to store one
    │   ├── ActivityUnavailable           the servers keep no activity stream
    │   ├── EncryptionFailed              the server has no usable encryption key
    │   ├── PermissionDenied              the server's policy forbids the call
    │   └── UnsupportedByServer           the server is too old for what was asked
    ├── StreamExists                      created before
    ├── NotFound
    │   ├── StreamNotFound
    │   ├── PartitionNotFound
    │   └── StreamDeleted                 while somebody was reading it
    ├── PartitionReadonly                 publishing to a read-only partition
    ├── PartitionPaused                   reading a paused partition
    ├── PublishError
    │   ├── PublishOutcomeUnknown         it may be stored or not
    │   │   └── AckTimeout (TimeoutError) no ack in time
    │   ├── PublishNotSent                certainly not stored
    │   │   └── PublishTimeout (TimeoutError)  no room or no link in time
    │   ├── IncorrectOffset               the expected offset was not the next one
    │   ├── PublishRefused                any other refusal by the server
    │   └── PublishManyFailed             some of many; has the outcome of each
    ├── SubscriptionError
    │   ├── SubscriptionLost (TimeoutError)  could not be resumed in time
    │   ├── StreamReset                   the log was truncated or created anew
    │   └── PartitionTaken                another member of the consumer group reads it
    └── GroupError                        of consumer groups
        ├── AlreadyMember                 somebody with this id is in the group
        ├── NotGroupMember                this member is out of the group, or may be
        └── NoCommittedPosition           nothing says where to begin

Each names what is known of the stream, partition and offset, and says what to do. Exceptions that
are made here carry the cause as `__cause__`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from .model import Ack, Message


class LiftbridgeError(Exception):
    """Root of the tree: catch this to catch everything that this package raises."""

    hint: str = ""
    """What to do about it; part of the text."""

    def __init__(
        self,
        message: str,
        *,
        stream: str | None = None,
        partition: int | None = None,
        offset: int | None = None,
    ) -> None:
        """Keep the message and where it happened."""
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
        """Survive pickling, attributes included."""
        return _rebuild, (type(self), self.__dict__.copy())

    def at(
        self, stream: str | None = None, partition: int | None = None, offset: int | None = None
    ) -> Self:
        """Fill in what is not known yet of the place, and return the same exception."""
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
    """The request makes no sense; nothing was sent, or the server refused it as invalid."""


class WrongType(InvalidRequest, TypeError):
    """An argument has the wrong type; nothing was sent."""


class MessageTooLarge(InvalidRequest):
    """The message is larger than the client's or the server's limit; it was not stored."""

    hint = "split it, compress it, or raise the limit here and on the server"


class StreamReserved(InvalidRequest):
    """Internal streams are created and deleted by the server alone."""

    hint = "choose another name"


class DuplicateCorrelationId(InvalidRequest):
    """A publish with this correlation id has not been settled yet."""

    hint = "leave the id out, or make it unique among the publishes in flight"


class MalformedData(LiftbridgeError, ValueError):
    """Bytes that are no envelope, frame or message of the expected kind."""


class UndecodableMessage(MalformedData):
    """The value of a message is not what its reader expects; the cause says why.

    Only this message is affected: the next step of the reading returns the one after it.
    """

    hint = "read on after it, or let on_undecodable= skip such messages or hand them over raw"
    received: Message | None = None
    """The message as it is on the log."""


class UsageError(LiftbridgeError, RuntimeError):
    """The call is right, the moment is not."""


class ClientClosed(UsageError):
    """The client is closed, or was never connected."""

    hint = "use `async with Client(...)`, or call connect() first; a closed client stays closed"


class ConcurrentRead(UsageError):
    """Another task is already waiting for the next message of this subscription."""

    hint = "give each task a subscription of its own"


class ConnectionFailed(LiftbridgeError):
    """No server could be reached, or the connection broke in the middle of the call."""

    hint = "check the addresses and that the servers run"
    reached_server: bool = False
    """Whether a request was sent, so that the server may have acted on it."""


class ConnectTimeout(ConnectionFailed, TimeoutError):
    """No server could be reached before the time of the call was up."""


class NotLiftbridge(ConnectionFailed):
    """Something that does not speak gRPC over HTTP/2 answers at this address."""

    hint = "is this the port of the Liftbridge API (9292 by default), and is TLS set up alike?"


class TLSFailed(ConnectionFailed):
    """TLS could not be agreed upon; nothing was sent, and no other try will mend it.

    One side speaks TLS and the other does not, or a file of the client's cannot be used.
    """

    hint = "switch TLS on here if the servers have it, and off if not; check the files of TLS(...)"


class ServerNotTrusted(TLSFailed):
    """The server's certificate does not prove that it is the right server; nothing was sent."""

    hint = (
        "check that this is the right server, that ca has the authority that signed its "
        "certificate, the dates of both, and server_name if its name is not that of the address"
    )


class ClientNotTrusted(TLSFailed):
    """The server wants a certificate of the client, or another one; nothing was acted upon."""

    hint = (
        "give TLS(cert=..., key=...) of an authority in the server's tls.client.auth.ca, "
        "and check their dates"
    )


class RequestTimeout(LiftbridgeError, TimeoutError):
    """The call took longer than its timeout; whether the server acted on it is not known."""


class ServerError(LiftbridgeError):
    """An answer of the server that has no type of its own."""

    code: str = "UNKNOWN"
    """Name of the gRPC status code."""


class NoMetadataLeader(ServerError):
    """The cluster is just choosing its metadata leader."""

    hint = "try again in a moment"


class NotPartitionLeader(ServerError):
    """The broker that was asked does not lead the partition, even by fresh metadata."""

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
    """The server's policy does not let this client do that; it is not tried again.

    Of a publish it does not say that the message is not stored: v1.9.0 stores what it denies.
    """

    hint = (
        "the policy of each server must allow it to the common name of the client's certificate: "
        "p, <name>, <stream, or * for metadata>, <method>"
    )


class UnsupportedByServer(ServerError):
    """The server is too old for what was asked."""


class StreamExists(LiftbridgeError):
    """A stream of this name exists."""

    hint = "pass exist_ok=True if that is fine"


class NotFound(LiftbridgeError):
    """What was asked for does not exist."""


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

    hint = "publish to it, call resume_stream, or subscribe with resume=True"


class PublishError(LiftbridgeError):
    """A publish that did not end in an ack."""

    correlation_id: str = ""


class PublishOutcomeUnknown(PublishError):
    """Written, but not answered: the message may be stored or not."""

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
    """No room in the window, or no link to a server, within the timeout."""


class IncorrectOffset(PublishError):
    """The partition's next offset was not the expected one; the message was not stored."""

    hint = "somebody else published first: read on and decide again"


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
    """A subscription that ended otherwise than it should."""


class SubscriptionLost(SubscriptionError, TimeoutError):
    """The subscription broke and could not be resumed within resubscribe_timeout.

    Everything up to `offset` (`last_offset`) was delivered.
    """

    hint = "subscribe again at last_offset + 1"

    @property
    def last_offset(self) -> int | None:
        """The last offset that was delivered; None where there was none."""
        return self.offset


class StreamReset(SubscriptionError):
    """The log is not the one that was being read: it was truncated, or created anew.

    `offset` is the first offset at which the difference showed.
    """

    hint = "decide where to go on; offsets seen so far mean nothing in the new log"


class PartitionTaken(SubscriptionError):
    """The subscription of a member of a consumer group gave way to another member's.

    The group deals with it; users see it as the reason in `PartitionBlocked` events.
    """


class GroupError(LiftbridgeError):
    """A member of a consumer group cannot go on, or not yet."""


class AlreadyMember(GroupError):
    """A member with this consumer id is in the group."""

    hint = (
        "give each member an id of its own, or none; one that crashed is expelled when the "
        "server's groups.consumer.timeout is over"
    )


class NotGroupMember(GroupError):
    """This member is not in the group, or cannot be sure that it is, so it may not commit."""

    hint = "it joins again by itself; what was not committed is read again by whoever is next"


class NoCommittedPosition(GroupError):
    """The group has committed nothing for this partition, and start=None says that it must have."""

    hint = "set the cursor, or pass start="
