"""The plan of faults: which fault is applied to which message."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from liftbridge_aio.broker.faults.fault_plan import (
    AppliedFault,
    ConditionFailed,
    FaultPlan,
    Place,
    PlannedFault,
    RpcName,
    Rule,
)
from liftbridge_aio.wire import rpc

RPCS = st.sampled_from(["Publish", "SetCursor"])
PLACES = st.sampled_from(["request", "reply"])
REQUESTS = st.sampled_from(["orders", "invoices"])


class Planning(RuleBasedStateMachine):
    """Counts matching messages itself, and compares the plan with that."""

    faults = Bundle("faults")

    def __init__(self) -> None:
        super().__init__()
        self.plan = FaultPlan()
        self.added: list[PlannedFault] = []
        self.only: dict[PlannedFault, str | None] = {}
        self.seen: dict[PlannedFault, int] = {}
        self.record: list[AppliedFault] = []

    @rule(
        target=faults,
        name=RPCS,
        at=PLACES,
        times=st.none() | st.integers(1, 3),
        skip=st.integers(0, 3),
        only=st.none() | REQUESTS,
    )
    def add(
        self, name: RpcName, at: Place, times: int | None, skip: int, only: str | None
    ) -> PlannedFault:
        when = None if only is None else only.__eq__
        fault = self.plan.add(Rule(kind="drop", rpc=name, at=at, times=times, skip=skip, when=when))
        self.added.append(fault)
        self.only[fault] = only
        self.seen[fault] = 0
        return fault

    @rule(name=RPCS, at=PLACES, request=REQUESTS)
    def offer(self, name: RpcName, at: Place, request: str) -> None:
        due = []
        for fault in self.added:
            planned = fault.rule
            matches = (planned.rpc, planned.at) == (name, at) and self.only[fault] in (
                None,
                request,
            )
            if matches and not fault.is_over:
                self.seen[fault] += 1
                limit = float("inf") if planned.times is None else planned.times
                if self.seen[fault] > planned.skip and fault.applied < limit:
                    due.append(fault)
        before = {fault: fault.applied for fault in due}

        chosen = self.plan.decide(name, at, request)

        assert chosen is (due[0] if due else None)
        if chosen is not None:
            assert chosen.applied == before[chosen] + 1
            self.record.append(AppliedFault("drop", name, at, chosen.applied))
        assert all(fault.applied == before[fault] for fault in due[1:])

    @rule(fault=faults)
    def cancel(self, fault: PlannedFault) -> None:
        self.plan.cancel(fault)

    @rule()
    def clear(self) -> None:
        self.plan.clear()
        assert not self.plan.has_faults
        assert not self.plan.pending

    @invariant()
    def the_record_is_complete_and_in_order(self) -> None:
        assert self.plan.applied == self.record

    @invariant()
    def it_is_armed_exactly_while_something_may_happen(self) -> None:
        assert self.plan.has_faults == any(fault.is_live for fault in self.added)

    @invariant()
    def pending_is_what_was_asked_for_more_often_than_it_happened(self) -> None:
        assert self.plan.pending == [
            fault
            for fault in self.added
            if not fault.is_over and fault.applied < (fault.rule.times or 1)
        ]


TestPlanning = Planning.TestCase


def test_the_names_are_those_of_the_table_of_procedures() -> None:
    table = [one.name for one in vars(rpc).values() if isinstance(one, rpc.Rpc)]

    assert sorted(get_args(RpcName)) == sorted(table)


def test_replies_are_chosen_by_the_request_and_by_the_reply() -> None:
    plan = FaultPlan()
    plan.add(
        Rule(
            kind="drop",
            rpc="Publish",
            at="reply",
            when=lambda request: request == "orders",
            when_reply=lambda reply: reply > 1,
        )
    )

    assert plan.decide("Publish", "reply", "invoices", 2) is None
    assert plan.decide("Publish", "reply", "orders", 1) is None
    assert plan.decide("Publish", "reply", "orders", None) is None, "a refusal is not looked at"
    assert plan.decide("Publish", "reply", "orders", 2) is not None


def test_a_condition_that_raises_is_reported_and_ends_its_fault() -> None:
    plan = FaultPlan()
    fault = plan.add(Rule(kind="drop", rpc="Publish", when=lambda request: request.nonsense))

    with pytest.raises(ConditionFailed, match="nonsense"):
        plan.decide("Publish", "request", "orders")

    assert isinstance(fault.error, AttributeError)
    assert list(plan.broken) == [fault]
    assert plan.decide("Publish", "request", "orders") is None
    plan.clear()
    assert not plan.broken


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"rpc": "Publich"}, "no such procedure: 'Publich'; there are CreateStream, "),
        ({"rpc": "Publish", "at": "answer"}, "no such place: 'answer'; there are request, "),
        ({"rpc": "Publish", "times": 0}, "times must be positive"),
        ({"rpc": "Publish", "skip": -1}, "skip must not be negative"),
        ({"rpc": "Publish", "at": "handshake"}, "Publish has no handshake"),
        ({"rpc": "Publish", "when_reply": bool}, 'when_reply needs at="reply"'),
        ({"rpc": "PublishAsync", "at": "reply", "when": bool}, "choose its replies by when_reply"),
        ({"rpc": "Subscribe", "kind": "duplicate"}, "cannot be executed twice"),
        ({"rpc": "Publish", "kind": "duplicate", "at": "reply"}, "has one reply"),
    ],
)
def test_a_fault_that_can_never_apply_is_refused(arguments: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Rule(**{"kind": "drop", **arguments})


def test_the_text_of_a_fault_has_its_rule_and_count() -> None:
    plan = FaultPlan()
    fault = plan.add(Rule(kind="fail", rpc="Publish", times=2, skip=1, when=bool))
    plan.decide("Publish", "request", "one")
    plan.decide("Publish", "request", "two")

    assert str(fault) == (
        "fail, Publish at request, after 1 others, under a condition: applied 1 of 2"
    )
