"""The queue of a partition, against a plain model of a broker, its session and its log."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from liftbridge_aio._publish.core.partition_queue import (
    TABLE,
    Action,
    Confirm,
    Drop,
    Fail,
    PartitionQueue,
    QueueEvent,
    QueueState,
    QueueStep,
    Retry,
    Send,
)
from support.examples import examples


@dataclass(eq=False)
class Sent:
    """A message, and what has become of it."""

    number: int
    acked: bool = True
    cancelled: bool = False
    settled: bool = False

    def done(self) -> bool:
        return self.cancelled or self.settled


class PublishingMachine(RuleBasedStateMachine):
    """One partition, one publisher; the broker may lose and regain its knowledge of the stream.

    What must hold: the log has the messages in the order of publishing, each once; nothing is sent
    while a message is in doubt, that is, may still be refused because the stream is unknown, or
    waits to be sent again; and no message waits without a message in doubt before it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.queue: PartitionQueue[Sent] = PartitionQueue()
        self.count = 0
        self.broker_knows = False
        self.outbox: list[Sent] = []
        self.on_the_wire: list[Sent] = []
        """Written, and not handled by the broker."""
        self.refused: list[Sent] = []
        """Refused by the broker because it does not know the stream; the refusal is on its way."""
        self.stored: list[Sent] = []
        """Stored, and the ack has not arrived."""
        self.log: list[int] = []
        self.proven = False
        """True once an answer has shown that the broker knows the stream."""
        self.accepted_before: set[Sent] = set()
        self.doubtful: Sent | None = None
        self.to_retry: Sent | None = None
        self.asked: Sent | None = None

    def written(self) -> list[Sent]:
        return [*self.on_the_wire, *self.refused, *self.stored]

    def held(self) -> list[Sent]:
        retried = [] if self.to_retry is None else [self.to_retry]
        return [*self.outbox, *self.written(), *retried]

    def carry_out(self, actions: list[Action[Sent]]) -> None:
        for action in actions:
            match action:
                case Send():
                    for message in action.messages:
                        self.send(message)
                case Retry():
                    assert action.message is self.doubtful
                    self.to_retry = action.message
                case Confirm():
                    assert action.message is self.doubtful
                    self.asked = action.message
                case Fail() | Drop():
                    for message in action.messages:
                        self.settle(message)

    def send(self, message: Sent) -> None:
        assert self.doubtful is None, "sent while another message is in doubt"
        if message.acked and not self.proven:
            self.doubtful = message
        self.outbox.append(message)

    def settle(self, message: Sent) -> None:
        message.settled = True
        self.known(message)

    def known(self, message: Sent) -> None:
        self.accepted_before.discard(message)
        if self.doubtful is message:
            self.doubtful = None
        if self.to_retry is message:
            self.to_retry = None

    @rule(acked=st.booleans())
    def publish(self, acked: bool) -> None:
        was_open = self.queue.state is QueueState.OPEN
        message = Sent(self.count, acked)
        self.count += 1
        actions = self.queue.enqueued(message)
        if was_open:  # what the dispatcher takes for granted
            assert actions == [Send((message,))]
            assert self.queue.state is QueueState.OPEN
        self.carry_out(actions)

    @rule(knows=st.booleans())
    def broker_changes(self, knows: bool) -> None:
        self.broker_knows = knows

    @precondition(lambda self: self.outbox)
    @rule()
    def write(self) -> None:
        message = self.outbox.pop(0)
        if message.cancelled:
            self.carry_out(self.queue.cancelled(message))
        else:
            self.on_the_wire.append(message)
            message.settled = not message.acked

    @precondition(lambda self: self.on_the_wire)
    @rule()
    def broker_handles_one(self) -> None:
        message = self.on_the_wire.pop(0)
        if self.broker_knows:
            self.log.append(message.number)
            if message.acked:
                self.stored.append(message)
        elif message.acked:
            self.refused.append(message)

    @precondition(lambda self: self.stored)
    @rule(data=st.data(), refusal=st.booleans())
    def answer(self, data: st.DataObject, refusal: bool) -> None:
        """Acks may overtake each other. A refusal for another reason counts as an answer too."""
        at = data.draw(st.integers(0, len(self.stored) - 1))
        message = self.stored.pop(at)
        if message.settled:
            return
        state = self.queue.state
        if message is self.doubtful or message in self.accepted_before:
            self.proven = True
            self.doubtful = None
            self.accepted_before.clear()
        if refusal:
            self.carry_out(self.queue.refused(message))
        else:
            self.settle(message)
            actions = self.queue.acked(message)
            if state is QueueState.OPEN:  # what the dispatcher takes for granted
                assert actions == []
                assert self.queue.state is QueueState.OPEN
            self.carry_out(actions)
        assert message.settled

    @precondition(lambda self: self.refused)
    @rule()
    def stream_unknown(self) -> None:
        message = self.refused.pop(0)
        if not message.settled:
            self.proven = False
            if message is self.doubtful:
                self.accepted_before.clear()
            self.carry_out(self.queue.stream_unknown(message))
            assert message.done() or self.to_retry is message

    @precondition(lambda self: self.to_retry is not None)
    @rule()
    def retry(self) -> None:
        message, self.to_retry = self.to_retry, None
        assert message is not None
        if message.cancelled:
            self.carry_out(self.queue.cancelled(message))
        else:
            self.outbox.append(message)

    @precondition(lambda self: self.queue.probe in self.written())
    @rule()
    def late(self) -> None:
        probe = self.queue.probe
        assert probe is not None
        self.carry_out(self.queue.late(probe))

    @precondition(lambda self: self.asked in self.stored)
    @rule()
    def accepted(self) -> None:
        """The broker answers the question once it has handled all before, the probe included."""
        asked, self.asked = self.asked, None
        assert asked is not None
        if self.queue.state is QueueState.CONFIRMING:
            self.known(asked)
            self.accepted_before.add(asked)
            self.carry_out(self.queue.was_accepted(asked))

    @precondition(lambda self: any(not each.settled for each in self.held()))
    @rule(data=st.data())
    def expire(self, data: st.DataObject) -> None:
        self.pick(data, self.queue.expired)

    @precondition(lambda self: any(not each.settled for each in self.held()))
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        def mark(message: Sent) -> list[Action[Sent]]:
            message.cancelled = True
            return []

        self.pick(data, mark)

    def pick(self, data: st.DataObject, event: Callable[[Sent], list[Action[Sent]]]) -> None:
        candidates = [each for each in self.held() if not each.settled]
        message = data.draw(st.sampled_from([*candidates, *self.queue.waiting]))
        if message in self.outbox and event == self.queue.expired:
            message.cancelled = True  # its session skips it
        self.carry_out(event(message))

    @rule()
    def lose_session(self) -> None:
        failed = [each for each in self.written() if not each.settled]
        returned, self.outbox = self.outbox, []
        self.on_the_wire, self.refused, self.stored, self.asked = [], [], [], None
        self.begin_again()
        if self.to_retry is not None and self.to_retry.cancelled:
            self.known(self.to_retry)
        for message in [*failed, *returned]:
            if message in failed:
                self.settle(message)
            self.known(message)
        self.carry_out(self.queue.session_lost(failed, returned))

    def begin_again(self) -> None:
        self.proven = False
        self.accepted_before.clear()

    @rule()
    def abandon(self) -> None:
        if self.doubtful in self.outbox:
            self.outbox.remove(self.doubtful)
        self.begin_again()
        self.carry_out(self.queue.abandoned())
        assert self.doubtful is None

    @invariant()
    def log_is_in_order(self) -> None:
        assert self.log == sorted(set(self.log))

    @invariant()
    def messages_wait_only_for_one_in_doubt(self) -> None:
        if self.queue.waiting:
            assert self.doubtful is not None

    @invariant()
    def no_message_is_lost(self) -> None:
        assert (self.queue.probe is not None) == (
            self.queue.state in {QueueState.PROBING, QueueState.CONFIRMING}
        )
        if self.queue.probe is not None:
            assert self.queue.probe is self.doubtful
            assert self.queue.probe in self.held() or self.queue.probe.done()


TestPublishing = PublishingMachine.TestCase
TestPublishing.settings = settings(
    max_examples=examples(100), stateful_step_count=30, deadline=None
)


def test_every_event_is_possible_in_some_state() -> None:
    assert set().union(*TABLE.values()) == set(QueueEvent)
    assert set(TABLE) == set(QueueState)


def test_what_cannot_happen_is_refused() -> None:
    queue: PartitionQueue[Any] = PartitionQueue()
    with pytest.raises(AssertionError, match="new cannot take the event LATE"):
        queue._on(QueueEvent.LATE, Sent(0))


def test_only_the_probe_is_sent_again() -> None:
    again = {
        event
        for row in TABLE.values()
        for event, (_, *steps) in row.items()
        if QueueStep.RETRY in steps
    }
    assert again == {QueueEvent.STREAM_UNKNOWN}
