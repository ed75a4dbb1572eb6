from __future__ import annotations

from liftbridge_aio import Ack, AckTimeout, IncorrectOffset
from liftbridge_aio.nats.core.stream_acks import StreamAcks


def ack(stream: str) -> Ack:
    return Ack(stream, "s", "s", 0)


def test_named_streams_are_told_in_their_own_order() -> None:
    acks = StreamAcks(["a", "b"])
    complete = []
    for stream in ("b", "a"):
        assert acks.take(ack(stream), None)
        complete.append(acks.complete)
    assert complete == [False, True]
    assert acks.outcomes() == [ack("a"), ack("b")]


def test_a_number_of_streams_is_told_in_the_order_of_their_answers() -> None:
    acks = StreamAcks(2)
    assert acks.take(ack("z"), None)
    assert acks.take(ack("a"), None)
    assert acks.complete
    assert acks.outcomes() == [ack("z"), ack("a")]


def test_neither_strangers_nor_second_answers_nor_too_many_count() -> None:
    acks = StreamAcks(["a", "b"])
    assert not acks.take(ack("c"), None)
    assert acks.take(ack("a"), None)
    assert not acks.take(ack("a"), None)
    assert not acks.complete
    many = StreamAcks(1)
    assert many.take(ack("a"), None)
    assert not many.take(ack("b"), None)
    assert many.outcomes() == [ack("a")]


def test_a_refusal_is_an_answer() -> None:
    acks, refusal = StreamAcks(["a"]), IncorrectOffset("no")
    assert acks.take(ack("a"), refusal)
    assert acks.complete
    assert acks.outcomes() == [refusal]


def test_those_that_do_not_answer_have_an_error_that_says_who_did() -> None:
    for wanted in (["a", "b", "c"], 3):
        acks, missing = StreamAcks(wanted), AckTimeout("no ack")
        acks.take(ack("a"), None)
        acks.give_up(missing)
        assert acks.outcomes() == [ack("a"), missing, missing]
        assert "of 3 streams these have answered: 'a'" in str(missing)
