"""What shall go wrong, and which message it befalls. Pure: messages in, decisions out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, get_args

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
"""Where a fault acts.

`request`: on what the client sends, once the broker has read it and before it acts on it.
`handshake`: on the empty message that a Subscribe begins with (W16).
`reply`: on what the broker answers, after it has acted; every message of a Subscribe and every
answer of a PublishAsync is one. A refused unary call has a reply too, its status.
`connection`: on a new connection.
"""

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
]
"""What can go wrong."""

Condition: TypeAlias = Callable[[Any], bool]
"""Looks at a message of the wire."""

_ONE_REQUEST_MANY_REPLIES: Final[RpcName] = "Subscribe"
_MANY_REQUESTS: Final[RpcName] = "PublishAsync"


def check_name(rpc: str) -> None:
    """Refuse the names of procedures that do not exist.

    Raises:
        ValueError: there is no such one; the error says which there are.
    """
    known = get_args(RpcName)
    if rpc not in known:
        text = f"no such procedure: {rpc!r}; there are {', '.join(known)}"
        raise ValueError(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One thing that shall go wrong; refuses what makes no sense when it is made."""

    kind: FaultKind
    rpc: RpcName | None
    """None: not about the messages of a call."""
    at: Place = "request"
    times: int | None = 1
    """None: until it is cancelled."""
    skip: int = 0
    """So many matching messages pass by first."""
    when: Condition | None = None
    """Looks at the request of the call."""
    when_reply: Condition | None = None
    """Looks at the reply."""
    seconds: float = 0.0
    code: str = ""
    text: str = ""

    def __post_init__(self) -> None:
        """Check that it can happen at all.

        Raises:
            ValueError: it cannot.
        """
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

    def concerns(self, request: Any, reply: Any) -> bool:
        """Whether it is about this message, as far as the conditions go."""
        if self.when is not None and not self.when(request):
            return False
        # A refusal is a reply, but no message that a condition could look at.
        return self.when_reply is None or (reply is not None and self.when_reply(reply))

    def __str__(self) -> str:
        parts = [self.kind, *([f"{self.rpc} at {self.at}"] if self.rpc else [])]
        if self.skip:
            parts.append(f"after {self.skip} others")
        if self.when is not None or self.when_reply is not None:
            parts.append("under a condition")
        return ", ".join(parts)


class PlannedFault:
    """A rule, and what became of it."""

    __slots__ = ("applied", "error", "is_over", "passed", "rule")

    def __init__(self, rule: Rule) -> None:
        """Nothing has happened yet."""
        self.rule = rule
        self.passed = 0
        """Matching messages that passed because of `skip`."""
        self.applied = 0
        self.is_over = False
        """Cancelled: it happens no more, and what it holds back goes on."""
        self.error: Exception | None = None
        """What a condition raised; the fault is over then."""

    @property
    def is_live(self) -> bool:
        """Whether it may still happen."""
        return not self.is_over and (self.rule.times is None or self.applied < self.rule.times)

    @property
    def is_pending(self) -> bool:
        """Whether something that was asked for has not happened; "always" asks for once."""
        return not self.is_over and self.applied < (self.rule.times or 1)

    def __str__(self) -> str:
        times = "always" if self.rule.times is None else self.rule.times
        return f"{self.rule}: applied {self.applied} of {times}"


class ConditionFailed(Exception):
    """A condition raised instead of answering."""

    def __init__(self, fault: PlannedFault) -> None:
        super().__init__(f"the condition of a fault ({fault.rule}) raised {fault.error!r}")


@dataclass(frozen=True, slots=True)
class AppliedFault:
    """Something that went wrong on purpose."""

    kind: FaultKind
    rpc: RpcName | None
    """None where it was not about the messages of a call."""
    at: Place | None
    number: int
    """The how manieth time this fault happened, from 1; for links: how many it befell."""


class FaultPlan:
    """All faults that are planned, and the record of those that happened."""

    def __init__(self) -> None:
        """Begin with nothing planned."""
        self.armed = False
        """Whether any message may be befallen: all that is asked while nothing is planned."""
        self.applied: list[AppliedFault] = []
        """What happened, in order."""
        self.clearances = 0
        """How often everything was cancelled."""
        self._live: list[PlannedFault] = []
        self._broken: list[PlannedFault] = []

    @property
    def pending(self) -> Sequence[PlannedFault]:
        """What was asked for and has not happened, oldest first."""
        return [fault for fault in self._live if fault.is_pending]

    @property
    def broken(self) -> Sequence[PlannedFault]:
        """Faults whose condition raised."""
        return tuple(self._broken)

    def add(self, rule: Rule) -> PlannedFault:
        """Plan a fault."""
        fault = PlannedFault(rule)
        self._live.append(fault)
        self.armed = True
        return fault

    def cancel(self, fault: PlannedFault) -> None:
        """Let a fault happen no more; what has happened stays in the record."""
        fault.is_over = True
        self._forget_spent()

    def clear(self) -> None:
        """Cancel everything, and forget what was broken."""
        for fault in self._live:
            fault.is_over = True
        self._broken.clear()
        self.clearances += 1
        self._forget_spent()

    def record(self, kind: FaultKind, number: int) -> None:
        """Note what happened at once and needed no plan."""
        self.applied.append(AppliedFault(kind, None, None, number))

    def decide(
        self, rpc: RpcName | None, at: Place, request: Any = None, reply: Any = None
    ) -> PlannedFault | None:
        """Choose what befalls a message: the oldest fault that is due, or None.

        A message suffers one fault. `skip` counts every message that its fault is about, whatever
        else befalls it.

        Raises:
            ConditionFailed: a condition raised; its fault is over.
        """
        chosen = None
        for fault in tuple(self._live):
            if (fault.rule.rpc, fault.rule.at) != (rpc, at):
                continue
            is_due = fault.passed >= fault.rule.skip
            if is_due and chosen is not None:
                continue
            if not self._concerns(fault, request, reply):
                continue
            if is_due:
                chosen = fault
            else:
                fault.passed += 1
        if chosen is not None:
            chosen.applied += 1
            self.applied.append(AppliedFault(chosen.rule.kind, rpc, at, chosen.applied))
            self._forget_spent()
        return chosen

    def _concerns(self, fault: PlannedFault, request: Any, reply: Any) -> bool:
        try:
            return fault.rule.concerns(request, reply)
        except Exception as error:
            fault.error = error
            self._broken.append(fault)
            self.cancel(fault)
            raise ConditionFailed(fault) from error

    def _forget_spent(self) -> None:
        self._live = [fault for fault in self._live if fault.is_live]
        self.armed = bool(self._live)
