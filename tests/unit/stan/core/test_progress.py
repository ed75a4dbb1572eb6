"""Whatever is lost, every message is acked by its user, or comes (again)."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from liftbridge_aio.stan.core.progress import Progress
from liftbridge_aio.stan.core.start import StartAt
from liftbridge_aio.wire.stan import StartPosition
from support.examples import examples

SECOND = 10**9
BEGIN = 1_700_000_000 * SECOND


class Stored(NamedTuple):
    sequence: int
    timestamp: int


class OneSubscription(RuleBasedStateMachine):
    """A subscription without a durable, and a server that may lose sessions and channels."""

    def __init__(self) -> None:
        super().__init__()
        self.now = BEGIN
        self.log: list[Stored] = []
        self.next = 0
        """Index of the message that the server sends next in this session."""
        self.unacked_by_server: list[Stored] = []
        self.progress = Progress(StartAt.new_only(), shared=False)
        self.waiting: list[Stored] = []
        self.got: list[Stored] = []
        """Messages that the user has got and not acked."""
        self.acked: set[Stored] = set()
        self.all: set[Stored] = set()

    @rule(count=st.integers(1, 3), seconds=st.integers(0, 10))
    def publish(self, count: int, seconds: int) -> None:
        """Timestamps never fall; some are equal."""
        self.now += seconds * SECOND
        for _ in range(count):
            message = Stored(len(self.log) + 1, self.now)
            self.log.append(message)
            self.all.add(message)

    def deliver(self, message: Stored) -> None:
        if self.progress.received(*message):
            if message not in self.waiting:
                self.waiting.append(message)
        else:
            assert message in self.acked, "what nobody acked was kept from the user"
            if message in self.unacked_by_server:
                self.unacked_by_server.remove(message)

    @rule(count=st.integers(1, 4))
    def send(self, count: int) -> None:
        for _ in range(min(count, len(self.log) - self.next)):
            message = self.log[self.next]
            self.next += 1
            self.unacked_by_server.append(message)
            self.deliver(message)

    @rule()
    def redeliver(self) -> None:
        for message in list(self.unacked_by_server):
            self.deliver(message)

    @rule(count=st.integers(1, 3))
    def read(self, count: int) -> None:
        for _ in range(min(count, len(self.waiting))):
            self.got.append(self.waiting.pop(0))

    @rule(place=st.integers(0, 20), is_lost=st.booleans())
    def ack(self, place: int, is_lost: bool) -> None:
        if not self.got:
            return
        message = self.got.pop(place % len(self.got))
        self.acked.add(message)
        if self.progress.acked(*message):
            assert message in self.log, "an ack would settle a message of another log"
            if not is_lost and message in self.unacked_by_server:
                self.unacked_by_server.remove(message)
            if message in self.waiting:
                self.waiting.remove(message)  # as the buffer does

    @rule(skew=st.integers(-4, 30), channels_too=st.booleans(), gap=st.integers(1, 5))
    def lose_session(self, skew: int, channels_too: bool, gap: int) -> None:
        """The client's clock may be ahead by anything, and behind by less than the margin."""
        self.now += gap * SECOND
        if channels_too:
            self.log = []
        waiting = {message.sequence for message in self.waiting}
        start = self.progress.next_start(
            waiting, self.now + skew * SECOND, max(self.now - BEGIN, 0)
        )
        self.waiting.clear()
        self.unacked_by_server.clear()
        assert start.position is StartPosition.TIME_DELTA_START
        fields = start.request_fields(0)
        begin = self.now - fields["start_time_delta"]
        self.next = sum(message.timestamp < begin for message in self.log)

    @invariant()
    def nothing_is_missed(self) -> None:
        """All of the log is acked, has been read, waits, or is still to be sent."""
        known = self.acked.union(self.got, self.waiting, self.unacked_by_server)
        assert known.issuperset(self.log[: self.next])


OneSubscription.TestCase.settings = settings(
    max_examples=examples(300), stateful_step_count=40, deadline=None
)
TestOneSubscription = OneSubscription.TestCase


def test_a_queue_group_takes_older_messages_of_other_members() -> None:
    progress = Progress(StartAt.new_only(), shared=True)
    assert progress.received(5, 50)
    assert progress.acked(5, 50)
    progress.next_start((), 100, 50)
    assert progress.received(4, 40)
    alone = Progress(StartAt.new_only(), shared=False)
    assert alone.received(5, 50)
    assert alone.acked(5, 50)
    alone.next_start((), 100, 50)
    assert not alone.received(4, 40)


def test_a_second_ack_is_not_sent() -> None:
    progress = Progress(StartAt.new_only(), shared=False)
    assert progress.received(1, 10)
    assert progress.received(1, 10)
    assert progress.acked(1, 10)
    assert not progress.acked(1, 10)
    assert not progress.acked(2, 20)
