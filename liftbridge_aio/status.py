"""What a failed call means: the one table from status codes and texts to errors and retries.

Servers tell many conditions apart only by the text of the status (W21, W25), so the texts stand
here and nowhere else. Pure: no clock, no connection.
"""

from __future__ import annotations

import enum
from typing import Final

from . import errors
from .errors import LiftbridgeError


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
    """How far a failed call got."""

    NOT_SENT = "not sent"
    """Certainly not acted upon."""
    UNKNOWN = "unknown"
    """Sent, but no answer came."""
    ANSWERED = "answered"
    """The server answered with this status."""


class CallFailure(Exception):
    """A call that did not succeed, in gRPC's terms. Stays inside the package."""

    def __init__(
        self,
        code: Code,
        text: str,
        reach: Reach = Reach.ANSWERED,
        *,
        unfit: type[errors.ConnectionFailed] | None = None,
    ) -> None:
        super().__init__(f"{code.name}: {text}")
        self.code = code
        self.text = text
        self.reach = reach
        self.unfit = unfit
        """What is wrong with the server of this address; None: nothing, or nothing lasting."""

    @property
    def late(self) -> bool:
        """Whether our own patience ended, and not the server's."""
        return self.code is Code.DEADLINE_EXCEEDED and self.reach is not Reach.ANSWERED

    @property
    def insecure(self) -> bool:
        """Whether TLS failed, which no other try at the same address will mend."""
        return self.unfit is not None and issubclass(self.unfit, errors.TLSFailed)


class Remedy(enum.Enum):
    """What may help against a failed call."""

    RAISE = "raise"
    """Nothing: tell the user."""
    RETRY = "retry"
    """Try again, at another broker where there is one."""
    REFRESH = "refresh"
    """Fetch metadata, then try again at whoever leads now."""
    SUCCESS = "success"
    """It was done by an earlier try whose answer got lost."""


READS: Final = frozenset(
    {"FetchMetadata", "FetchPartitionMetadata", "FetchCursor", "Check", "Subscribe"}
)
"""Change nothing on the server, so they may be repeated at will."""

IDEMPOTENT: Final = frozenset({"PauseStream", "SetStreamReadonly", "SetCursor"})
"""Twice leaves the same state as once."""

REPEAT_SHOWS: Final = {
    "CreateStream": Code.ALREADY_EXISTS,
    "DeleteStream": Code.NOT_FOUND,
}
"""A repeat answers this code where the try before it went through unseen."""

_NO_METADATA_LEADER: Final = ("no known metadata leader", "no responders")
_NOT_PARTITION_LEADER: Final = (
    "not partition leader",
    "should be sent to partition leader",
    "not leader for cursors partition",
    "not cursor partition leader",
)
_CURSORS_UNHEARD_OF: Final = "Cursors stream does not exist"
_CURSORS_STALLED: Final = ("context deadline exceeded", "deadline exceeded", "timeout")
_NOT_AUTHORISED: Final = ("not authorized", "Failed to retrieve client ID")


def _mentions(text: str, parts: tuple[str, ...]) -> bool:
    return any(part in text for part in parts)


def not_partition_leader(failure: CallFailure) -> bool:
    """Tell whether the broker says that another one leads (W25)."""
    return failure.code is Code.FAILED_PRECONDITION and _mentions(
        failure.text, _NOT_PARTITION_LEADER
    )


def remedy(call: str, failure: CallFailure, *, earlier_unknown: bool = False) -> Remedy:
    """Say what may help against `failure` of the procedure named `call`.

    Args:
        call: the procedure, for example "CreateStream".
        failure: what came back.
        earlier_unknown: whether an earlier try of the same call got no answer.
    """
    if failure.reach is Reach.NOT_SENT:
        return Remedy.RETRY
    if failure.reach is Reach.UNKNOWN:
        repeatable = call in READS or call in IDEMPOTENT or call in REPEAT_SHOWS
        return Remedy.RETRY if repeatable else Remedy.RAISE
    if earlier_unknown and REPEAT_SHOWS.get(call) is failure.code:
        return Remedy.SUCCESS
    if not_partition_leader(failure):
        return Remedy.REFRESH
    if failure.code is Code.INTERNAL and _mentions(failure.text, _NO_METADATA_LEADER):
        return Remedy.RETRY
    if failure.code is Code.INTERNAL and _CURSORS_UNHEARD_OF in failure.text:
        # Cursors are asked for where metadata has the stream: this broker has just been restarted.
        return Remedy.REFRESH
    if call == "SetCursor" and failure.code is Code.INTERNAL:
        # The cursors stream stalls while it is paused or replicating (liftbridge#390).
        return Remedy.RETRY if _mentions(failure.text, _CURSORS_STALLED) else Remedy.RAISE
    if failure.code is Code.UNAVAILABLE:
        repeatable = call in READS or call in IDEMPOTENT or call in REPEAT_SHOWS
        return Remedy.RETRY if repeatable else Remedy.RAISE
    return Remedy.RAISE


def error_from(
    call: str,
    failure: CallFailure,
    *,
    stream: str | None = None,
    partition: int | None = None,
) -> LiftbridgeError:
    """Turn the failure of a call into the error that users see."""
    error = _untraced_error(call, failure)
    error.__cause__ = failure
    if isinstance(error, errors.ServerError):
        error.code = failure.code.name
    if isinstance(error, errors.ConnectionFailed):
        error.reached_server = failure.reach is not Reach.NOT_SENT
    return error.at(stream=stream, partition=partition)


def _untraced_error(call: str, failure: CallFailure) -> LiftbridgeError:
    text = f"{call}: {failure.text}"
    code = failure.code
    if failure.unfit is not None:
        return failure.unfit(text)
    if _mentions(failure.text, _NOT_AUTHORISED) or code in {
        Code.PERMISSION_DENIED,
        Code.UNAUTHENTICATED,
    }:
        return errors.PermissionDenied(text)
    if not_partition_leader(failure):
        return errors.NotPartitionLeader(text)
    if code is Code.INTERNAL and _mentions(failure.text, _NO_METADATA_LEADER):
        return errors.NoMetadataLeader(text)
    if call in {"SetCursor", "FetchCursor"} and code is Code.INTERNAL:
        return errors.CursorsUnavailable(text)
    if "encryption" in failure.text and code in {Code.FAILED_PRECONDITION, Code.INTERNAL}:
        return errors.EncryptionFailed(text)
    if "maximum payload exceeded" in failure.text or (
        code is Code.RESOURCE_EXHAUSTED and "max_receive_bytes" in failure.text
    ):
        return errors.MessageTooLarge(text)
    if code is Code.INVALID_ARGUMENT and "reserved" in failure.text:
        return errors.StreamReserved(text)
    if code is Code.NOT_FOUND:
        return _not_found(text, failure.text)
    simple = _BY_CODE.get(code)
    return errors.ServerError(text) if simple is None else simple(text)


def _not_found(text: str, said: str) -> LiftbridgeError:
    if "commit log was deleted" in said:
        return errors.StreamDeleted(text)
    # What follows the colon is the user's own name, in which anything may stand.
    what = said.partition(":")[0]
    if "partition" in what:
        return errors.PartitionNotFound(text)
    if "group" in what:
        return errors.NotFound(text)
    return errors.StreamNotFound(text)


_BY_CODE: Final[dict[Code, type[LiftbridgeError]]] = {
    Code.UNAVAILABLE: errors.ConnectionFailed,
    Code.DEADLINE_EXCEEDED: errors.RequestTimeout,
    Code.INVALID_ARGUMENT: errors.InvalidRequest,
    Code.ALREADY_EXISTS: errors.StreamExists,
    Code.UNIMPLEMENTED: errors.UnsupportedByServer,
}


class StreamEnd(enum.Enum):
    """Why the server ended a Subscribe, as far as the client's next step goes."""

    STOP_REACHED = "stop reached"
    READONLY = "readonly"
    EMPTY = "empty"
    STOP_BEFORE_START = "stop before start"
    """Orderly where the client computed the start, the user's mistake otherwise (W22)."""
    NOT_FOUND = "not found"
    """Perhaps not yet known to this broker."""
    DELETED = "deleted"
    PAUSED = "paused"
    LOG_CLOSED = "log closed"
    """The partition is paused, or its server is shutting down."""
    NOT_LEADER = "not leader"
    FENCED = "fenced"
    """Another member of the consumer group has the partition."""
    REVERSE_DONE = "reverse done"
    LOST = "lost"
    """Anything that another try may mend."""
    REFUSED = "refused"
    """Anything that no other try will mend."""


_TRY_AGAIN: Final = frozenset(
    {Code.OK, Code.UNAVAILABLE, Code.CANCELLED, Code.DEADLINE_EXCEEDED, Code.INTERNAL, Code.ABORTED}
)


def stream_end(failure: CallFailure, *, reverse: bool = False) -> StreamEnd:
    """Classify the end of a Subscribe by code and text (W20 to W25).

    A clean end (code OK) is what a shutting-down server sends: the reading goes on elsewhere.
    INTERNAL is treated like a lost link, because a server that shuts down or replaces a partition
    says so with it (W24). UNKNOWN with "segment has been closed" comes to readers whose segment was
    removed or rewritten by the cleaner, to one at the end of the log with the next message;
    "segment not found" to readers of an ex-leader whose log was cut behind them.
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
    return StreamEnd.LOST if code in _TRY_AGAIN else StreamEnd.REFUSED


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
    """Why a call of a consumer group failed, as far as the member's next step goes."""

    NO_GROUP = "no group"
    NOT_A_MEMBER = "not a member"
    OTHER_EPOCH = "other epoch"
    """The group has gone on: another coordinator, epoch, or both."""
    NOT_COORDINATOR = "not coordinator"
    ALREADY_MEMBER = "already a member"
    NO_STREAM = "no stream"
    NO_CANDIDATES = "no candidates"
    """There is no other broker that could coordinate the group."""
    LOST = "lost"
    """Anything that another try may mend."""
    REFUSED = "refused"
    """Anything that no other try will mend."""


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
_NO_USE: Final = frozenset(
    {Code.INVALID_ARGUMENT, Code.UNIMPLEMENTED, Code.PERMISSION_DENIED, Code.UNAUTHENTICATED}
)


def group_refusal(failure: CallFailure) -> GroupRefusal:
    """Classify the failure of a call of a consumer group by code and text.

    "Already exists" comes to one of two who join a new group in the same moment, "not active" from
    a coordinator that is just taking over: both are worth another try.
    """
    if failure.reach is Reach.ANSWERED:
        for wanted, part, refusal in _GROUP_REFUSALS:
            if failure.code is wanted and part in failure.text:
                return refusal
        if failure.code in _NO_USE or _mentions(failure.text, _NOT_AUTHORISED):
            return GroupRefusal.REFUSED
    return GroupRefusal.LOST if failure.unfit is None else GroupRefusal.REFUSED


def replaced_in_group(failure: CallFailure) -> bool:
    """Tell whether a member's subscription ended because another member has the partition.

    A server that shuts down may end it with the same clean end (W24).
    """
    return failure.reach is Reach.ANSWERED and (
        failure.code is Code.OK or stream_end(failure) is StreamEnd.FENCED
    )
