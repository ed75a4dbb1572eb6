"""Flow control on the lane, against a peer that uses every byte it is allowed."""

from __future__ import annotations

from collections import deque

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from liftbridge_aio.net.core.data_lane import DataLane
from liftbridge_aio.net.core.lane_stream import LaneCredit
from support.examples import examples
from support.peers.lane_frames import WIDEST, data, flow_size, grpc, increments, response

LONGEST = 400


def test_credit_waits_for_a_quarter_of_the_window() -> None:
    credit = LaneCredit(400)
    credit.received, credit.consumed = 300, 99
    assert credit.due(0, 0) == 0
    credit.consumed = 100
    assert credit.due(0, 0) == 100


def test_credit_does_not_wait_when_the_message_in_progress_needs_it() -> None:
    credit = LaneCredit(400)
    credit.received, credit.consumed = 350, 50
    assert credit.allowance == 50
    assert credit.due(10, 50) == 0
    assert credit.due(10, 51) == 50
    assert credit.due(10, 200) == 150


def test_no_advance_is_greater_than_the_message() -> None:
    credit = LaneCredit(1000)
    credit.received = 1000
    credit.set_window(100)
    # 800 bytes of other messages are unread: this one would need 910 and is only 210 long.
    assert credit.due(200, 10) == 0
    credit.consumed = 700
    assert credit.due(200, 10) == 700 + 210
    credit.granted = 700 + 210
    assert credit.allowance == 10


def test_credit_never_makes_a_window_too_wide() -> None:
    credit = LaneCredit(1000)
    credit.received = 1000
    assert credit.due(1000, 2**32) == WIDEST
    credit = LaneCredit(WIDEST - 10)
    credit.set_window(100)
    # The peer may still go by the wider window, so more than this would be an error of ours.
    credit.received = 190
    assert credit.due(190, 1000) == 200


def test_newer_windows_count_until_all_are_acknowledged() -> None:
    credit = LaneCredit(100)
    credit.set_window(10)
    credit.set_window(50)
    credit.received = 51
    # This one was on its way before the stream was opened.
    verdicts: list[bool] = []
    for received, acknowledged in ((51, 100), (51, 10), (50, 10), (50, 50), (51, 50)):
        credit.received = received
        credit.window_acknowledged(acknowledged)
        verdicts.append(credit.exceeded)
    assert verdicts == [False, True, False, False, True]


class Peer(RuleBasedStateMachine):
    """A server that never sends more than it may, and whose user drains as slowly as they like.

    It applies our settings late, in order, and acknowledges them later still.
    """

    def __init__(self) -> None:
        super().__init__()
        self.lane = DataLane()
        self.stream = self.lane.open(1, window=100, max_message_bytes=LONGEST)
        self.lane.feed(response(1))
        self.window = 100
        """Bytes that the peer may send now."""
        self.setting = 100
        self.on_the_way: deque[tuple[str, int]] = deque()
        self.unacknowledged: deque[int] = deque()
        self.widest = 100
        self.to_send = b""
        self.sent: list[bytes] = []
        self.received: list[bytes] = []
        self.consumed = 0
        self.padding = 0
        self.credited = 0
        self.framed_bytes = 0

    @rule(sizes=st.lists(st.integers(0, LONGEST), min_size=1, max_size=5))
    def write_messages(self, sizes: list[int]) -> None:
        messages = [bytes([len(self.sent) % 256]) * size for size in sizes]
        self.sent += messages
        self.to_send += grpc(*messages)

    @precondition(lambda self: self.to_send and self.window > 0)
    @rule(
        share=st.sampled_from([0.1, 0.5, 1.0, 1.0]),
        padding=st.none() | st.integers(0, 50),
        frames=st.integers(1, 3),
    )
    def send(self, share: float, padding: int | None, frames: int) -> None:
        payload = b""
        for _ in range(frames):
            overhead = 0 if padding is None else padding + 1
            size = min(max(int((self.window - overhead) * share), 1), len(self.to_send))
            if overhead + size > self.window or not size:
                break
            self.window -= overhead + size
            self.framed_bytes += overhead + size
            self.padding += overhead
            payload += data(1, self.to_send[:size], padding=padding)
            self.to_send = self.to_send[size:]
        assert self.lane.feed(payload) == b""

    @rule(number=st.integers(1, 10))
    def drain(self, number: int) -> None:
        taken = self.stream.messages[:number]
        self.stream.messages = self.stream.messages[number:]
        self.received += taken
        self.consumed += flow_size(taken)
        self.stream.consumed(flow_size(taken))

    @rule()
    def write_credit(self) -> None:
        for stream_id, increment in increments(self.lane.credit()).items():
            assert stream_id == 1
            self.credited += increment
            self.on_the_way.append(("credit", increment))

    @rule(window=st.integers(1, 1000))
    def write_setting(self, window: int) -> None:
        self.widest = max(self.widest, window)
        self.stream.set_window(window)
        self.on_the_way.append(("setting", window))

    @precondition(lambda self: self.on_the_way)
    @rule()
    def arrive(self) -> None:
        kind, value = self.on_the_way.popleft()
        if kind == "credit":
            self.window += value
        else:
            self.window += value - self.setting
            self.setting = value
            self.unacknowledged.append(value)
        assert self.window <= WIDEST

    @precondition(lambda self: self.unacknowledged)
    @rule()
    def acknowledge_setting(self) -> None:
        self.stream.window_acknowledged(self.unacknowledged.popleft())

    @rule()
    def everything_arrives_at_a_user_who_reads(self) -> None:
        rounds = 0
        while self.to_send or self.stream.messages or self.on_the_way:
            rounds += 1
            # Windows of one byte have to be got through as well.
            assert rounds < 1000
            while self.on_the_way:
                self.arrive()
            if self.to_send and self.window > 0:
                self.send(share=1.0, padding=None, frames=1)
            self.drain(1000)
            self.write_credit()
        self.write_credit()
        assert self.received == self.sent
        assert not self.stream.incomplete
        # All that came is due or was given back, but for what is not worth a frame.
        assert 0 <= self.consumed + self.padding - self.credited < max(self.setting // 4, 1)

    @invariant()
    def the_peer_did_nothing_wrong(self) -> None:
        assert self.lane.violation is None
        assert self.stream.failure is None

    @invariant()
    def messages_arrive_in_order(self) -> None:
        arrived = self.received + self.stream.messages
        assert arrived == self.sent[: len(arrived)]

    @invariant()
    def credit_is_given_for_what_was_drained_and_for_one_message(self) -> None:
        assert self.credited <= self.consumed + self.padding + LONGEST + 5

    @invariant()
    def unread_bytes_are_bounded(self) -> None:
        unread = self.framed_bytes - self.consumed - self.padding
        assert unread <= self.widest + LONGEST + 5


TestPeer = Peer.TestCase
TestPeer.settings = settings(max_examples=examples(60), stateful_step_count=40, deadline=None)
