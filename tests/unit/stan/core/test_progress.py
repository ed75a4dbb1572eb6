"""Whatever is lost, every message is acked by its user, or comes (again)."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from liftbridge_aio.stan.core.progress import Place, Progress
from liftbridge_aio.stan.core.start import StartAt
from liftbridge_aio.wire.stan import StartPosition
from support.examples import examples

SECOND = 10**9
BEGIN = 1_700_000_000 * SECOND


class OneSubscription(RuleBasedStateMachine):
    """A subscription without a durable, and a server that may lose sessions and channels."""

    def __init__(self) -> None:
        super().__init__()
        self.now = BEGIN
        self.log: list[Place] = []
        self.first = 0
        """Index of the oldest message that has not expired."""
        self.expired: set[Place] = set()
        self.next = 0
        """Index of the message that the server sends next in this session."""
        self.unacked_by_server: list[Place] = []
        self.progress = Progress(StartAt.new_only(), shared=False)
        self.waiting: list[Place] = []
        self.got: list[Place] = []
        """Messages that the user has got and not acked."""
        self.acked: set[Place] = set()
        self.all: set[Place] = set()

    @rule(count=st.integers(1, 3), seconds=st.integers(0, 10))
    def publish(self, count: int, seconds: int) -> None:
        """Timestamps never fall; some are equal."""
        self.now += seconds * SECOND
        for _ in range(count):
            message = Place(len(self.log) + 1, self.now)
            self.log.append(message)
            self.all.add(message)

    def deliver(self, message: Place) -> None:
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

    @rule(count=st.integers(1, 3))
    def expire(self, count: int) -> None:
        """The server removes old messages; who has not got them does not get them."""
        for _ in range(count):
            if self.first < self.next:
                gone = self.log[self.first]
                self.first += 1
                self.expired.add(gone)

    @rule(
        channels_too=st.booleans(),
        others=st.integers(0, 6),
        is_slow=st.booleans(),
        gap=st.integers(1, 5),
    )
    def lose_session(self, channels_too: bool, others: int, is_slow: bool, gap: int) -> None:
        """Others may have published in the new log before this client is back."""
        self.now += gap * SECOND
        if channels_too:
            self.log, self.first = [], 0
        self.publish(others, 0)
        known = self.progress.end_session({message.sequence for message in self.waiting})
        self.waiting.clear()
        self.unacked_by_server.clear()
        start = self.progress.next_start(
            None if known is None or is_slow else self.find(known.sequence), self.now - BEGIN
        )
        self.next = len(self.log)
        if start.position is StartPosition.FIRST:
            self.next = self.first
        elif start.position is StartPosition.SEQUENCE_START:
            self.next = min(max(start.value - 1, self.first), len(self.log))
        else:
            begin = self.now - start.request_fields(0)["start_time_delta"]
            self.next = max(sum(each.timestamp < begin for each in self.log), self.first)

    def find(self, sequence: int) -> Place | None:
        """The server clamps to what it has, and behind that waits for what is new."""
        place = max(sequence - 1, self.first)
        return self.log[place] if place < len(self.log) else None

    @invariant()
    def nothing_is_missed(self) -> None:
        """All of the log is acked, has been read, waits, or is still to be sent."""
        known = self.acked.union(self.got, self.waiting, self.unacked_by_server, self.expired)
        assert known.issuperset(self.log[: self.next])


OneSubscription.TestCase.settings = settings(
    max_examples=examples(300), stateful_step_count=40, deadline=None
)
TestOneSubscription = OneSubscription.TestCase


def test_a_queue_group_takes_older_messages_of_other_members() -> None:
    progress = Progress(StartAt.new_only(), shared=True)
    assert progress.received(5, 50)
    assert progress.acked(5, 50)
    progress.end_session(())
    assert progress.received(4, 40)
    alone = Progress(StartAt.new_only(), shared=False)
    assert alone.received(5, 50)
    assert alone.acked(5, 50)
    alone.end_session(())
    assert not alone.received(4, 40)


def start_after(*received: Place, found: Place | None) -> StartAt:
    """Where a subscription starts that has received and acked these in the session before."""
    progress = Progress(StartAt.new_only(), shared=False)
    for place in received:
        assert progress.received(*place)
        assert progress.acked(*place)
    assert progress.end_session(()) == (received[-1] if received else None)
    return progress.next_start(found, 7)


def test_the_same_log_is_continued_by_sequence() -> None:
    assert start_after(Place(5, 50), found=Place(5, 50)) == StartAt.sequence(6)
    assert start_after(Place(5, 50), found=Place(9, 90)) == StartAt.sequence(6)  # 5 has expired


def test_another_log_is_read_from_its_beginning() -> None:
    for found in (Place(5, 90), Place(2, 90), None):
        assert start_after(Place(5, 50), found=found) == StartAt.earliest()
    assert start_after(found=None) == StartAt.age(7)


def test_nothing_of_another_log_counts_as_acked() -> None:
    """Its server's clock may be behind."""
    progress = Progress(StartAt.new_only(), shared=False)
    assert progress.received(5, 50)
    assert progress.acked(5, 50)
    progress.end_session(())
    progress.next_start(Place(2, 40), 7)
    assert progress.received(2, 40)


def test_a_second_ack_is_not_sent() -> None:
    progress = Progress(StartAt.new_only(), shared=False)
    assert progress.received(1, 10)
    assert progress.received(1, 10)
    assert progress.acked(1, 10)
    assert not progress.acked(1, 10)
    assert not progress.acked(2, 20)
