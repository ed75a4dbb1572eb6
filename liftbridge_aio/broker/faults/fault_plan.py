"""The planned faults, and the choice of the messages that they are applied to. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, TypedDict, get_args

from liftbridge_aio._core.arguments import check_integer

RpcName: TypeAlias = Literal[
    "CreateStream",
    "DeleteStream",
    "PauseStream",
    "SetStreamReadonly",
    "Subscribe",
    "FetchMetadata",
    "FetchPartitionMetadata",
    "Publish",
    "PublishAsync",
    "PublishToSubject",
    "SetCursor",
    "FetchCursor",
    "JoinConsumerGroup",
    "LeaveConsumerGroup",
    "FetchConsumerGroupAssignments",
    "ReportConsumerGroupCoordinator",
    "Check",
]
"""The remote procedures, as the wire names them; `Check` is the health check of gRPC."""

Place: TypeAlias = Literal["request", "handshake", "reply", "connection"]
"""The place where a fault is applied.

`request`: to what the client sends, once the broker has read it and before it acts on it.
`handshake`: to the empty message that a Subscribe begins with.
`reply`: to what the broker answers, after it has acted; every message of a Subscribe and every
answer of a PublishAsync is one. A refused unary call has a reply too: its status.
`connection`: to a new connection.
"""

MessagePlace: TypeAlias = Literal["request", "handshake", "reply"]
"""The place where a fault is applied to messages; see `Place`."""

FailureCode: TypeAlias = Literal[
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
]
"""The gRPC status codes other than OK."""

FaultKind: TypeAlias = Literal[
    "fail",
    "delay",
    "drop",
    "duplicate",
    "stall",
    "refuse link",
    "cut link",
    "go away",
    "skew clock",
    "forget streams",
]
"""The kinds of faults."""

Condition: TypeAlias = Callable[[Any], bool]
"""A predicate of a protocol message."""


class Which(TypedDict, total=False):
    """The arguments that choose which messages a fault is applied to."""

    at: MessagePlace
    """The place where it is applied, see `Place`; `"request"` by default."""
    times: int | None
    """Number of messages that it is applied to, 1 by default; None: all until it is cancelled."""
    skip: int
    """Number of matching messages to leave alone first, counted from now; 0 by default."""
    when: Condition
    """A predicate of the request."""
    when_reply: Condition
    """A predicate of the reply; requires `at="reply"`. Never true of a refused unary call."""


_ONE_REQUEST_MANY_REPLIES: Final[RpcName] = "Subscribe"
_MANY_REQUESTS: Final[RpcName] = "PublishAsync"


def check_name(rpc: str) -> None:
    """Check the name of a procedure.

    Raises:
        ValueError: there is no such procedure; the error lists those that exist.
    """
    known = get_args(RpcName)
    if rpc not in known:
        raise ValueError(f"no such procedure: {rpc!r}; there are {', '.join(known)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A fault and the messages it applies to; validated on creation."""

    kind: FaultKind
    rpc: RpcName | None
    """The procedure; None if the fault is not for messages of a call."""
    at: Place = "request"
    times: int | None = 1
    """The number of applications; None until it is cancelled."""
    skip: int = 0
    """Number of matching messages to leave alone first."""
    when: Condition | None = None
    """A predicate of the request of the call."""
    when_reply: Condition | None = None
    """A predicate of the reply."""
    seconds: float = 0.0
    code: str = ""
    text: str = ""

    def __post_init__(self) -> None:
        """Check that the fault can be applied.

        Raises:
            ValueError: it can never be applied.
        """
        if self.times is not None:
            check_integer(self.times, "times")
        check_integer(self.skip, "skip")
        if self.rpc is not None:
            check_name(self.rpc)
        problem = self._problem()
        if problem is not None:
            raise ValueError(problem)

    def _problem(self) -> str | None:
        places = get_args(Place)
        if self.at not in places:
            return f"no such place: {self.at!r}; there are {', '.join(places)}"
        if self.times is not None and self.times < 1:
            return f"times must be positive, or None for always, not {self.times}"
        if self.skip < 0:
            return f"skip must not be negative: {self.skip}"
        if self.at == "handshake" and self.rpc != _ONE_REQUEST_MANY_REPLIES:
            return f"{self.rpc} has no handshake, only {_ONE_REQUEST_MANY_REPLIES} has"
        if self.when_reply is not None and self.at != "reply":
            return 'when_reply needs at="reply"'
        if self.when is not None and self.rpc == _MANY_REQUESTS and self.at == "reply":
            return f"a {_MANY_REQUESTS} has many requests: choose its replies by when_reply"
        if self.kind == "duplicate":
            if self.rpc == _ONE_REQUEST_MANY_REPLIES and self.at == "request":
                return f"the request of a {self.rpc} cannot be executed twice within the call"
            if self.at == "reply" and self.rpc not in (_ONE_REQUEST_MANY_REPLIES, _MANY_REQUESTS):
                return f'a {self.rpc} has one reply; at="request" executes it twice'
        return None

    def matches(self, request: Any, reply: Any) -> bool:
        """Return True if the conditions hold for this message."""
        if self.when is not None and not self.when(request):
            return False
        # A refusal is a reply without a message that a condition could look at.
        return self.when_reply is None or (reply is not None and self.when_reply(reply))

    def __str__(self) -> str:
        parts = [self.kind, *([f"{self.rpc} at {self.at}"] if self.rpc else [])]
        if self.skip:
            parts.append(f"after {self.skip} others")
        if self.when is not None or self.when_reply is not None:
            parts.append("under a condition")
        return ", ".join(parts)


class PlannedFault:
    """A rule, and the number of times it was applied."""

    __slots__ = ("applied", "error", "is_over", "rule", "skipped")

    def __init__(self, rule: Rule) -> None:
        """Create a fault that has not been applied."""
        self.rule = rule
        self.skipped = 0
        """Matching messages that were left alone because of `skip`."""
        self.applied = 0
        self.is_over = False
        """True once it is cancelled or its condition raised; messages held back continue."""
        self.error: Exception | None = None
        """The exception that the condition raised."""

    @property
    def is_live(self) -> bool:
        """True if it may still be applied."""
        return not self.is_over and (self.rule.times is None or self.applied < self.rule.times)

    @property
    def is_pending(self) -> bool:
        """True if it was applied less often than planned; `times=None` plans it once."""
        return not self.is_over and self.applied < (self.rule.times or 1)

    def __str__(self) -> str:
        times = "always" if self.rule.times is None else self.rule.times
        return f"{self.rule}: applied {self.applied} of {times}"


class ConditionFailed(Exception):
    """The condition of a fault raised an exception."""

    def __init__(self, fault: PlannedFault) -> None:
        super().__init__(f"the condition of a fault ({fault.rule}) raised {fault.error!r}")


@dataclass(frozen=True, slots=True)
class AppliedFault:
    """A fault that was applied."""

    kind: FaultKind
    rpc: RpcName | None
    """The procedure; None if the fault was not for messages of a call."""
    at: Place | None
    number: int
    """The number of this application, from 1; for connections, the number of connections."""


class FaultPlan:
    """The planned faults, and the record of those that were applied."""

    def __init__(self) -> None:
        """Create a fault plan without faults."""
        self.has_faults = False
        """True while faults are planned: the only check for each message without faults."""
        self.applied: list[AppliedFault] = []
        """The faults that were applied, in order."""
        self.times_cleared = 0
        """Number of calls of `clear`."""
        self._live: list[PlannedFault] = []
        self._broken: list[PlannedFault] = []

    @property
    def pending(self) -> Sequence[PlannedFault]:
        """The faults that were applied less often than planned, oldest first."""
        return [fault for fault in self._live if fault.is_pending]

    @property
    def broken(self) -> Sequence[PlannedFault]:
        """The faults whose condition raised."""
        return tuple(self._broken)

    def add(self, rule: Rule) -> PlannedFault:
        """Plan a fault."""
        fault = PlannedFault(rule)
        self._live.append(fault)
        self.has_faults = True
        return fault

    def cancel(self, fault: PlannedFault) -> None:
        """Cancel a fault; its applications stay in the record."""
        fault.is_over = True
        self._drop_finished()

    def clear(self) -> None:
        """Cancel all faults, and forget the broken ones."""
        for fault in self._live:
            fault.is_over = True
        self._broken.clear()
        self.times_cleared += 1
        self._drop_finished()

    def record(self, kind: FaultKind, number: int) -> None:
        """Record a fault that was applied at once."""
        self.applied.append(AppliedFault(kind, None, None, number))

    def decide(
        self, rpc: RpcName | None, at: Place, request: Any = None, reply: Any = None
    ) -> PlannedFault | None:
        """Return the fault to apply to a message: the oldest that is due, or None.

        At most one fault is applied to a message. `skip` counts every message that matches its
        fault, whatever other fault is applied to it.

        Raises:
            ConditionFailed: a condition raised; its fault is over.
        """
        chosen = None
        for fault in tuple(self._live):
            if (fault.rule.rpc, fault.rule.at) != (rpc, at):
                continue
            is_due = fault.skipped >= fault.rule.skip
            if is_due and chosen is not None:
                continue
            if not self._matches(fault, request, reply):
                continue
            if is_due:
                chosen = fault
            else:
                fault.skipped += 1
        if chosen is not None:
            chosen.applied += 1
            self.applied.append(AppliedFault(chosen.rule.kind, rpc, at, chosen.applied))
            self._drop_finished()
        return chosen

    def _matches(self, fault: PlannedFault, request: Any, reply: Any) -> bool:
        try:
            return fault.rule.matches(request, reply)
        except Exception as error:
            fault.error = error
            self._broken.append(fault)
            self.cancel(fault)
            raise ConditionFailed(fault) from error

    def _drop_finished(self) -> None:
        self._live = [fault for fault in self._live if fault.is_live]
        self.has_faults = bool(self._live)
