"""Turns status codes and texts of failed calls into errors and decisions about retries. Pure.

Servers distinguish many conditions only by the text of the status, so all of these texts are here.
"""

from __future__ import annotations

import enum
from typing import Final

from liftbridge_aio import errors
from liftbridge_aio.errors import LiftbridgeError


class Code(enum.IntEnum):
    """gRPC status codes."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


class Reach(enum.Enum):
    """Progress of a failed call."""

    NOT_SENT = "not sent"
    """The server has certainly not acted on it."""
    UNKNOWN = "unknown"
    """Sent, but not answered."""
    ANSWERED = "answered"
    """The server answered with this status."""


class CallFailure(Exception):
    """A failed call, in gRPC's terms. Never raised to users."""

    def __init__(
        self,
        code: Code,
        text: str,
        reach: Reach = Reach.ANSWERED,
        *,
        unusable: type[errors.ConnectionFailed] | None = None,
    ) -> None:
        super().__init__(f"{code.name}: {text}")
        self.code = code
        self.text = text
        self.reach = reach
        self.unusable = unusable
        """The error class if the server cannot be used and retries will not help; else None."""

    @property
    def timed_out(self) -> bool:
        """True if the client's timeout was exceeded, and not a deadline of the server."""
        return self.code is Code.DEADLINE_EXCEEDED and self.reach is not Reach.ANSWERED

    @property
    def may_have_acted(self) -> bool:
        """True if the server may have acted on the request without confirming it.

        A server that answers "unavailable" may have forwarded the request before; one that answers
        that a time was up has stopped waiting for the result.
        """
        if self.reach is Reach.ANSWERED:
            timed_out = self.code is Code.INTERNAL and _mentions(self.text, _TIMED_OUT)
            return timed_out or self.code in {Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED}
        return self.reach is Reach.UNKNOWN

    @property
    def unanswered_by_raft(self) -> bool:
        """True if a server answers that Raft has not confirmed the change in time.

        A join that makes a group then ends with a code that otherwise means that nothing was done.
        """
        answered = self.reach is Reach.ANSWERED
        codes = {Code.INTERNAL, Code.FAILED_PRECONDITION}
        return answered and self.code in codes and self.text.endswith(_RAFT_TIMED_OUT)

    @property
    def tls_failed(self) -> bool:
        """True if TLS failed, so that retries at the same address will not help."""
        return self.unusable is not None and issubclass(self.unusable, errors.TLSFailed)


class Remedy(enum.Enum):
    """Reaction to a failed call."""

    RAISE = "raise"
    """Raise the error: a retry will not help."""
    RETRY = "retry"
    """Retry, at another broker if there is one."""
    REFRESH = "refresh"
    """Fetch metadata, then retry at the current leader."""
    SUCCESS = "success"
    """Return: an earlier attempt, whose answer was lost, has succeeded."""


READS: Final = frozenset(
    {"FetchMetadata", "FetchPartitionMetadata", "FetchCursor", "Check", "Subscribe"}
)
"""Calls that change nothing on the server, so they may be repeated."""

IDEMPOTENT: Final = frozenset({"PauseStream", "SetStreamReadonly", "SetCursor"})
"""Calls that leave the same state when repeated."""

REPEAT_SHOWS: Final = {
    "CreateStream": Code.ALREADY_EXISTS,
    "DeleteStream": Code.NOT_FOUND,
}
"""The code with which a repeat is answered if the attempt before it had succeeded."""

THROUGH_RAFT: Final = frozenset({"PauseStream", "SetStreamReadonly", *REPEAT_SHOWS})
"""Calls that a server answers once the Raft log of the cluster holds the change."""

_NO_METADATA_LEADER: Final = ("no known metadata leader", "no responders")
_NATS_AWAY: Final = "outbound buffer limit exceeded"
"""The server has lost NATS and keeps no more messages for it: this one was not sent."""
_NOT_PARTITION_LEADER: Final = (
    "not partition leader",
    "should be sent to partition leader",
    "not leader for cursors partition",
    "not cursor partition leader",
)
_NO_CURSORS_STREAM: Final = "Cursors stream does not exist"
_RAFT_TIMED_OUT: Final = "raft operation timed out"
_TIMED_OUT: Final = (_RAFT_TIMED_OUT, "deadline exceeded", "timeout")
_NOT_AUTHORISED: Final = ("not authorized", "Failed to retrieve client ID")


def _mentions(text: str, parts: tuple[str, ...]) -> bool:
    return any(part in text for part in parts)


def not_partition_leader(failure: CallFailure) -> bool:
    """Return True if the broker answers that it does not lead the partition."""
    return failure.code is Code.FAILED_PRECONDITION and _mentions(
        failure.text, _NOT_PARTITION_LEADER
    )


def remedy(call: str, failure: CallFailure, *, earlier_unknown: bool = False) -> Remedy:
    """Return what to do about `failure` of the procedure named `call`.

    Args:
        call: the procedure, for example "CreateStream".
        failure: its failure.
        earlier_unknown: True if the server may have acted on an earlier attempt of this call
            (`CallFailure.may_have_acted`).
    """
    if failure.reach is Reach.NOT_SENT:
        return Remedy.RETRY
    if failure.may_have_acted:
        repeatable = call in READS or call in IDEMPOTENT or call in REPEAT_SHOWS
        return Remedy.RETRY if repeatable else Remedy.RAISE
    if earlier_unknown and REPEAT_SHOWS.get(call) is failure.code:
        return Remedy.SUCCESS
    if not_partition_leader(failure):
        return Remedy.REFRESH
    if failure.code is Code.INTERNAL and _mentions(
        failure.text, (*_NO_METADATA_LEADER, _NATS_AWAY)
    ):
        return Remedy.RETRY
    if failure.code is Code.INTERNAL and _NO_CURSORS_STREAM in failure.text:
        # Metadata lists the stream of cursors, so this broker was just restarted.
        return Remedy.REFRESH
    return Remedy.RAISE


def error_from(
    call: str,
    failure: CallFailure,
    *,
    stream: str | None = None,
    partition: int | None = None,
) -> LiftbridgeError:
    """Return the error that users see for a failed call."""
    kind = _kind(call, failure)
    named = issubclass(kind, errors.ServerError)
    error = kind(f"{failure.text} ({call})" if named else failure.text)
    error.__cause__ = failure
    if isinstance(error, errors.ServerError):
        error.code = failure.code.name
    if isinstance(error, errors.ConnectionFailed):
        error.reached_server = failure.reach is not Reach.NOT_SENT
    return error.at(stream=stream, partition=partition)


def _kind(call: str, failure: CallFailure) -> type[LiftbridgeError]:
    code = failure.code
    if failure.unusable is not None:
        return failure.unusable
    if _mentions(failure.text, _NOT_AUTHORISED) or code in {
        Code.PERMISSION_DENIED,
        Code.UNAUTHENTICATED,
    }:
        return errors.PermissionDenied
    if not_partition_leader(failure):
        return errors.NotPartitionLeader
    if code is Code.INTERNAL and _mentions(failure.text, _NO_METADATA_LEADER):
        return errors.NoMetadataLeader
    if call in {"SetCursor", "FetchCursor"} and code is Code.INTERNAL:
        return errors.CursorsUnavailable
    if "encryption" in failure.text and code in {Code.FAILED_PRECONDITION, Code.INTERNAL}:
        return errors.EncryptionFailed
    if "maximum payload exceeded" in failure.text or (
        code is Code.RESOURCE_EXHAUSTED and "max_receive_bytes" in failure.text
    ):
        return errors.MessageTooLarge
    if code is Code.INVALID_ARGUMENT and "reserved" in failure.text:
        return errors.StreamReserved
    if code is Code.NOT_FOUND:
        return _not_found(failure.text)
    return _BY_CODE.get(code, errors.ServerError)


def _not_found(said: str) -> type[errors.NotFound]:
    if "commit log was deleted" in said:
        return errors.StreamDeleted
    # The part after the colon is a name chosen by the user, so it may contain anything.
    what = said.partition(":")[0]
    if "partition" in what:
        return errors.PartitionNotFound
    if "group" in what:
        return errors.NotFound
    return errors.StreamNotFound


_BY_CODE: Final[dict[Code, type[LiftbridgeError]]] = {
    Code.UNAVAILABLE: errors.ConnectionFailed,
    Code.DEADLINE_EXCEEDED: errors.RequestTimeout,
    Code.INVALID_ARGUMENT: errors.InvalidRequest,
    Code.ALREADY_EXISTS: errors.StreamExists,
    Code.UNIMPLEMENTED: errors.UnsupportedByServer,
}


class StreamEnd(enum.Enum):
    """The reason why a server ended a Subscribe call, by what the client does next."""

    STOP_REACHED = "stop reached"
    READONLY = "readonly"
    EMPTY = "empty"
    STOP_BEFORE_START = "stop before start"
    """A normal end if the client computed the start, otherwise an error of the user."""
    NOT_FOUND = "not found"
    """The stream may not be known to this broker yet."""
    DELETED = "deleted"
    PAUSED = "paused"
    LOG_CLOSED = "log closed"
    """The partition is paused, or its server is shutting down."""
    NOT_LEADER = "not leader"
    FENCED = "fenced"
    """Another member of the consumer group reads the partition."""
    REVERSE_DONE = "reverse done"
    LOST = "lost"
    """Anything that a retry may resolve."""
    REFUSED = "refused"
    """Anything that a retry will not resolve."""


_RETRYABLE: Final = frozenset(
    {Code.OK, Code.UNAVAILABLE, Code.CANCELLED, Code.DEADLINE_EXCEEDED, Code.INTERNAL, Code.ABORTED}
)


def stream_end(failure: CallFailure, *, reverse: bool = False) -> StreamEnd:
    """Classify the end of a Subscribe call by code and text.

    A clean end (code OK) is sent by a server that shuts down: reading continues elsewhere. INTERNAL
    is treated like a lost connection, because a server that shuts down or replaces a partition
    sends it. UNKNOWN with "segment has been closed" is sent to readers whose segment was removed or
    rewritten by the cleaner (at the end of the log with the next message), "segment not found" to
    readers of a former leader whose log was truncated behind them.
    """
    code, text = failure.code, failure.text
    if failure.reach is not Reach.ANSWERED:
        return StreamEnd.LOST
    if reverse and (
        (code is Code.UNKNOWN and text == "EOF")
        or (code is Code.INTERNAL and "segment not found" in text)
    ):
        return StreamEnd.REVERSE_DONE
    for wanted, part, end in _ENDS:
        if code is wanted and part in text:
            return end
    return StreamEnd.LOST if code in _RETRYABLE else StreamEnd.REFUSED


_ENDS: Final[tuple[tuple[Code, str, StreamEnd], ...]] = (
    (Code.RESOURCE_EXHAUSTED, "Stop offset reached", StreamEnd.STOP_REACHED),
    (Code.RESOURCE_EXHAUSTED, "End of readonly partition", StreamEnd.READONLY),
    (Code.RESOURCE_EXHAUSTED, "Stream is empty", StreamEnd.EMPTY),
    (Code.INVALID_ARGUMENT, "Stop offset is before start offset", StreamEnd.STOP_BEFORE_START),
    (Code.NOT_FOUND, "commit log was deleted", StreamEnd.DELETED),
    (Code.NOT_FOUND, "", StreamEnd.NOT_FOUND),
    (Code.FAILED_PRECONDITION, "commit log was closed", StreamEnd.PAUSED),
    (Code.INTERNAL, "segment has been closed", StreamEnd.LOG_CLOSED),
    (Code.UNKNOWN, "segment has been closed", StreamEnd.LOST),
    (Code.UNKNOWN, "segment not found", StreamEnd.LOST),
    (Code.FAILED_PRECONDITION, "Server not partition leader", StreamEnd.NOT_LEADER),
    (Code.FAILED_PRECONDITION, "not currently assigned", StreamEnd.FENCED),
)


class GroupRefusal(enum.Enum):
    """The reason why a call of a consumer group failed, by what the member does next."""

    NO_GROUP = "no group"
    NOT_A_MEMBER = "not a member"
    OTHER_EPOCH = "other epoch"
    """The group has another coordinator, epoch, or both by now."""
    NOT_COORDINATOR = "not coordinator"
    ALREADY_MEMBER = "already a member"
    NO_STREAM = "no stream"
    NO_CANDIDATES = "no candidates"
    """No other broker can coordinate the group."""
    LOST = "lost"
    """Anything that a retry may resolve."""
    REFUSED = "refused"
    """Anything that a retry will not resolve."""


_GROUP_REFUSALS: Final[tuple[tuple[Code, str, GroupRefusal], ...]] = (
    (Code.NOT_FOUND, "", GroupRefusal.NO_GROUP),
    (Code.FAILED_PRECONDITION, "No such consumer group", GroupRefusal.NO_GROUP),
    (Code.FAILED_PRECONDITION, "already a member", GroupRefusal.ALREADY_MEMBER),
    (Code.FAILED_PRECONDITION, "not the consumer group coordinator", GroupRefusal.NOT_COORDINATOR),
    (Code.FAILED_PRECONDITION, "group epoch differs", GroupRefusal.OTHER_EPOCH),
    (Code.FAILED_PRECONDITION, "generation mismatch", GroupRefusal.OTHER_EPOCH),
    (Code.FAILED_PRECONDITION, "No group coordinator candidates", GroupRefusal.NO_CANDIDATES),
    (Code.FAILED_PRECONDITION, "stream does not exist", GroupRefusal.NO_STREAM),
    (Code.FAILED_PRECONDITION, "is not a member of", GroupRefusal.NOT_A_MEMBER),
)
_NOT_RETRYABLE: Final = frozenset(
    {Code.INVALID_ARGUMENT, Code.UNIMPLEMENTED, Code.PERMISSION_DENIED, Code.UNAUTHENTICATED}
)


def group_refusal(failure: CallFailure) -> GroupRefusal:
    """Classify the failure of a call of a consumer group by code and text.

    "Already exists" is the answer to one of two members that join a new group at the same time,
    "not active" that of a coordinator that is just taking over: both are retried.
    """
    if failure.reach is Reach.ANSWERED:
        for wanted, part, refusal in _GROUP_REFUSALS:
            if failure.code is wanted and part in failure.text:
                return refusal
        if failure.code in _NOT_RETRYABLE or _mentions(failure.text, _NOT_AUTHORISED):
            return GroupRefusal.REFUSED
    return GroupRefusal.LOST if failure.unusable is None else GroupRefusal.REFUSED


def replaced_in_group(failure: CallFailure) -> bool:
    """Return True if a subscription may have ended because another member took the partition.

    A server that shuts down ends it in the same way.
    """
    return failure.reach is Reach.ANSWERED and (
        failure.code is Code.OK or stream_end(failure) is StreamEnd.FENCED
    )
