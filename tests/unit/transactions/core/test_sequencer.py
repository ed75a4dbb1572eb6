"""The sequencer: what each message of a log does, and which messages are committed."""

from __future__ import annotations

import pytest

from liftbridge_aio.errors import InvalidRequest
from liftbridge_aio.transactions.core.sequencer import (
    Outcome,
    ProducerState,
    ReplayRange,
    Sequencer,
)
from liftbridge_aio.transactions.errors import OpenTransaction, PartialCommit, ReplayMismatch
from support.traces import JOURNAL, Log, Reader, producer, read, uuid_of

BEGIN = Outcome.CONTINUE_BEGIN_SPAN
EXTEND = Outcome.CONTINUE_EXTEND_SPAN
LARGER = Outcome.CONTINUE_CLOCK_LARGER
ACKED = Outcome.CONTINUE_ALREADY_ACKED
ROLLBACK = Outcome.ACK_ROLLBACK
RING = Outcome.ACK_COMMIT_RING
REPLAY = Outcome.ACK_COMMIT_REPLAY


def sequencer(max_messages: int = 8192, *, strict: bool = False) -> Sequencer[str]:
    return Sequencer(max_messages=max_messages, strict=strict)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        # A lone message, after each state of its producer.
        ("A1o", "A1o"),
        ("A2o A1o", "A2o"),
        ("A2o A2o", "A2o"),
        ("A1c A2c A3o", "A3o"),
        ("A1c A2c A3o A4a", "A3o A4a"),
        ("A1c A2a A2o A3o", "A1c A2a A3o"),
        # Messages of a transaction.
        ("A1c A2c A3a", "A1c A2c A3a"),
        ("A1c A2c A1c A2c A3a", "A1c A2c A3a"),
        ("A1c A2a A1c A3c A4a", "A1c A2a A3c A4a"),
        ("A1c B1c A2a B2a", "A1c A2a B1c B2a"),
        # A commit without messages, at the clock of its last message, of a part, and repeated.
        ("A4a", "A4a"),
        ("A1c A2c A2a", "A1c A2c"),
        ("A5c A7c A6a A8a", "A5c A6a A8a"),
        ("A1c A2a A2a A2a", "A1c A2a"),
        ("A1c A2a A5c A4a A6a", "A1c A2a A4a A6a"),
        # Rollbacks: to the last commit, and to one before it, whose clocks are used again.
        ("A1c A2a A3c A4c A2a A5a", "A1c A2a A5a"),
        ("A1o A10c A1a A10c A11a", "A1o A10c A11a"),
        ("A10c A11a A5a A6c A7a", "A10c A11a A6c A7a"),
        ("A10c A11a A12c A5a A13a", "A10c A11a A13a"),
        # Messages that come too late are lost; only the order of publishing can prevent it.
        ("A10o A9o A11o", "A10o A11o"),
        ("A10c A12c A11a A13a", "A10c A11a A13a"),
        ("A10c A20c A15o A21a", "A15o A21a"),
        ("A1c A3c A2a A4a", "A1c A2a A4a"),
        ("A9c A10a A11c A10a A12c A13c A14c A15a", "A9c A10a A12c A13c A14c A15a"),
        # Unknown flags are those of a lone message; without a clock there are no duplicates.
        ("A1c A2x A3c A4a", "A2x A3c A4a"),
        ("- A1c - A2a -", "- - A1c A2a -"),
        ("A0c A0a A0o", "A0c A0a A0o"),
        ("A1c A0o A2c A3a", "A0o A1c A2c A3a"),
    ],
)
@pytest.mark.parametrize("max_messages", [1, 2, 3, 8192])
def test_what_is_committed(words: str, expected: str, max_messages: int) -> None:
    assert read(words, sequencer(max_messages)) == expected


@pytest.mark.parametrize(
    ("words", "outcome"),
    [
        ("A1o", Outcome.OUTSIDE_COMMIT),
        ("A1o A1o", Outcome.OUTSIDE_ALREADY_ACKED),
        ("A1x", Outcome.OUTSIDE_COMMIT),
        ("A1c A2o", Outcome.OUTSIDE_COMMIT),
        ("A1c", BEGIN),
        ("A1c A2c", EXTEND),
        ("A1c A2c A2c", LARGER),
        ("A1c A2a A1c", ACKED),
        ("A5a A4a", Outcome.ACK_RESET),
        ("A5a A6c A4a", Outcome.ACK_RESET),
        ("A5a A5a", ROLLBACK),
        ("A1c A0a", Outcome.OUTSIDE_COMMIT),
        ("A5a A6c A5a", ROLLBACK),
        ("A1a", Outcome.ACK_EMPTY),
        ("A1c A2a", RING),
        ("A1c A2c A3c A4a", REPLAY),
    ],
)
def test_outcome_of_the_last_message(words: str, outcome: Outcome) -> None:
    reader = Reader(Log(), sequencer(3))
    reader.follow(words)
    assert reader.outcomes[-1] is outcome


def test_txn_sequence_cases() -> None:
    """One log with a ring of three: duplicates, partial commits, rollbacks, replays, a reset."""
    log = Log()
    reader = Reader(log, sequencer(3))

    def case(words: str, delivered: str, *outcomes: Outcome) -> None:
        reader.outcomes.clear()
        assert reader.follow(words) == delivered
        assert reader.outcomes == list(outcomes)

    def replayed(first: str, end: str) -> None:
        assert reader.replays.pop() == (log.begin_of(first), log.begin_of(end))
        assert not reader.replays

    def pending() -> bool:
        return reader.sequencer.has_pending

    case("A1c A2c A1c A2c A3a", "A1c A2c A3a", BEGIN, EXTEND, LARGER, LARGER, RING)
    assert not pending()
    case("A4a", "A4a", Outcome.ACK_EMPTY)
    case("A5c A7c A6a", "A5c A6a", BEGIN, EXTEND, RING)
    assert not pending()
    # A rollback while B is open.
    case("A7c B1c A7c A8c B2c A6a", "", BEGIN, BEGIN, LARGER, EXTEND, EXTEND, ROLLBACK)
    assert pending()
    case("B3a", "B1c B2c B3a", REPLAY)
    replayed("B1c", "B2c")
    assert not pending()
    # Duplicates of this transaction and of earlier ones, in memory and in what is read again.
    case(
        "B4c B1c B4c B5c B6c B2c B7c B8a",
        "B4c B5c B6c B7c B8a",
        *(BEGIN, ACKED, LARGER, EXTEND, EXTEND, ACKED, EXTEND, REPLAY),
    )
    assert reader.replays.pop()[1] == log.begin_of("B6c")
    # A partial commit that skips everything in memory.
    case("B9c B11c B12c B13c B10a", "B9c B10a", BEGIN, EXTEND, EXTEND, EXTEND, REPLAY)
    replayed("B9c", "B12c")
    # Two transactions, each of which is read again.
    case("B11c A7c A8c B12c A9a", "A7c A8c A9a", BEGIN, BEGIN, EXTEND, EXTEND, REPLAY)
    replayed("A7c", "A8c")
    assert pending()
    case("B13a", "B11c B12c B13a", REPLAY)
    replayed("B11c", "B12c")
    assert not pending()
    # Back to an earlier commit, and the same clocks again.
    case("B8a B9c B10a", "B9c B10a", Outcome.ACK_RESET, BEGIN, RING)
    assert not pending()


def test_producer_states_round_trip_during_dequeue() -> None:
    """A checkpoint amid a transaction resumes at the message that was stepped to."""
    log = Log()
    reader = Reader(log, sequencer(12))

    def resumed() -> Reader:
        offsets, states = reader.sequencer.checkpoint()
        again = Sequencer[str](offsets, states)
        assert again.checkpoint() == (offsets, states)
        return Reader(log, again)

    for record in log.append("A1c A2c A3a"):
        reader.queue(record)
    assert reader.sequencer.step() is not None
    state = ProducerState(JOURNAL, producer("A"), 0, 0)
    assert reader.sequencer.checkpoint() == ({JOURNAL: log.records[1].end}, [state])
    second = resumed()
    second.queue(log.records[2])
    assert second.deliver() == ["A1c", "A2c", "A3a"]
    assert second.replays == [(0, log.begin_of("A3a"))]
    assert reader.deliver() == ["A2c", "A3a"]

    for record in log.append("A4c A5c A6a"):
        reader.queue(record)
    assert reader.sequencer.step()
    assert reader.sequencer.step()
    state = ProducerState(JOURNAL, producer("A"), 4, log.begin_of("A5c"))
    assert reader.sequencer.checkpoint() == ({JOURNAL: log.records[-2].end}, [state])
    third = resumed()
    third.queue(log.records[-1])
    assert third.deliver() == ["A5c", "A6a"]
    assert third.replays == [(log.begin_of("A5c"), log.begin_of("A6a"))]


def test_producer_pruning() -> None:
    log = Log()
    reader = Reader(log, sequencer(12))
    tick = 16  # 100 ns, behind the four bits of the counter
    assert reader.follow(f"A{10 * tick}c B{19 * tick}c B{20 * tick}a C{30 * tick}c")

    def left(horizon_ns: int) -> str:
        _, states = reader.sequencer.checkpoint(horizon_ns / 1e9)
        return "".join(chr(it.producer[-1]) for it in states)

    assert left(0) == "ABC"
    assert left(2000) == "ABC"
    assert left(1900) == "BC"
    assert left(1) == "C"
    assert left(10**15) == "C"  # further back than clocks go


def test_pruning_keeps_the_transaction_that_is_delivered() -> None:
    log = Log()
    reader = Reader(log, sequencer())
    assert reader.follow("B900000o") == "B900000o"
    for record in log.append("A1c A2c A3a"):
        reader.queue(record)
    assert reader.sequencer.step()
    reader.sequencer.checkpoint(1e-7)
    assert reader.deliver() == ["A2c", "A3a"]
    assert len(reader.sequencer.checkpoint(1e-7)[1]) == 1


def test_replay_reader_errors() -> None:
    log = Log()
    reader = Reader(log, sequencer(1))
    for record in log.append("B1c A2c A3a"):
        reader.queue(record)
    again = log.records[1]
    assert reader.sequencer.replay_range() == ReplayRange(JOURNAL, 102, 204)
    with pytest.raises(ReplayMismatch, match=r"of wrong/journal .* expected test/journal"):
        reader.sequencer.replay("wrong/journal", again.uuid, again.begin, again.end, "")
    with pytest.raises(ReplayMismatch, match=r"offset 101 .* expected 102 or later"):
        reader.sequencer.replay(JOURNAL, again.uuid, 101, again.end, "")
    with pytest.raises(ReplayMismatch, match=r"up to offset 302 .* expected 204 or less"):
        reader.sequencer.replay(JOURNAL, again.uuid, again.begin, 302, "")
    with pytest.raises(InvalidRequest, match="read replay_range"):
        reader.sequencer.step()
    assert reader.deliver() == ["A2c", "A3a"]


def test_calls_out_of_turn_are_refused() -> None:
    it = sequencer()
    for call in (it.replay_range, it.end_replay):
        with pytest.raises(InvalidRequest, match="no transaction is to be read again"):
            call()
    with pytest.raises(InvalidRequest, match="no transaction is to be read again"):
        it.replay(JOURNAL, uuid_of("A1c"), 0, 1, "")
    assert it.step() is None
    it.queue(JOURNAL, uuid_of("A1o"), 0, 1, "")
    with pytest.raises(InvalidRequest, match="step through all committed messages"):
        it.queue(JOURNAL, uuid_of("A2o"), 1, 2, "")
    with pytest.raises(InvalidRequest, match="max_messages must be from 1"):
        Sequencer[str](max_messages=0)
    with pytest.raises(InvalidRequest, match="max_bytes must be from 1"):
        Sequencer[str](max_bytes=0)
    with pytest.raises(InvalidRequest, match="a UUID has 16 bytes, not 3"):
        sequencer().queue(JOURNAL, b"abc", 1, 2, "")


def test_strict_rules() -> None:
    """Where the other implementation of the rules raises or keeps what it knows, so does strict."""
    with pytest.raises(OpenTransaction, match="clock 3 came outside of the open transaction"):
        read("A1c A2c A3o", sequencer(strict=True))
    with pytest.raises(PartialCommit, match=r"clock 2 was committed, and .* goes on to 3"):
        read("A1c A3c A2a", sequencer(strict=True))
    # An old commit does not reset its producer, unless a transaction is open.
    assert read("A1c A5a A2a A4c A6c A7a", sequencer(strict=True)) == "A1c A5a A6c A7a"
    assert read("A1c A5a A2a A4c A6c A7a") == "A1c A5a A4c A6c A7a"
    assert read("A1c A5a A6c A2a A4c A7a", sequencer(strict=True)) == "A1c A5a A4c A7a"
    assert read("A1c A2c A3a A3a A4o", sequencer(strict=True)) == "A1c A2c A3a A4o"


def test_ring_is_bounded_by_bytes() -> None:
    log = Log()
    it = Sequencer[str](max_bytes=250)
    reader = Reader(log, it)
    assert reader.follow("A1c A2c A3c B1o A4a") == "B1o A1c A2c A3c A4a"
    assert reader.replays == [(0, log.begin_of("A3c"))]
    assert reader.follow("A5c A6a") == "A5c A6a"
    assert reader.outcomes[-1] is RING


def test_each_journal_has_its_own_producers_and_offsets() -> None:
    it = Sequencer[str]()
    assert it.queue("x", uuid_of("A1c"), 0, 10, "") is BEGIN
    assert it.queue("y", uuid_of("A1c"), 5, 6, "") is BEGIN
    assert it.queue("y", uuid_of("A1a"), 6, 7, "ack") is RING
    assert [it.step(), it.step()] == [("y", 5, 6, ""), None]
    assert it.offsets == {"x": 10, "y": 7}
    assert it.has_pending
    it.checkpoint()
    assert not it.has_pending
