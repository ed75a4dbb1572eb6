"""Cases of the benchmarks, and the arguments that programs get for them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.cases import AckPolicy, Case, Choice, Kind, cases_of
from benchmarks.flags import parse_flags
from benchmarks.pacing import PATIENCE, SHORTENED, probe_messages, run_messages


def test_by_default_each_axis_is_gone_along() -> None:
    consume = cases_of(Kind.CONSUME, Choice())
    assert [(case.message_size, case.partitions) for case in consume] == [
        (250, 1),
        (16, 1),
        (4096, 1),
        (250, 4),
    ]
    assert consume[0].messages == 500_000
    publish = cases_of(Kind.PUBLISH, Choice())
    assert {case.window for case in publish} == {1, 100, 1_000, 10_000}
    assert {case.message_size for case in publish} == {16, 250, 4096}
    assert {(case.ack_policy, case.nodes) for case in publish} == {
        (AckPolicy.LEADER, 1),
        (AckPolicy.NONE, 1),
        (AckPolicy.ALL, 3),
    }
    assert [case.rate for case in cases_of(Kind.LATENCY, Choice())] == [1_000, 10_000]


def test_what_is_asked_for_is_mixed_and_nothing_else() -> None:
    choice = Choice(sizes=(16, 64), windows=(5, 7), messages=11)
    cases = cases_of(Kind.PUBLISH, choice)
    assert [(case.window, case.message_size, case.messages) for case in cases] == [
        (5, 16, 11),
        (5, 64, 11),
        (7, 16, 11),
        (7, 64, 11),
    ]


def test_the_words_are_those_of_the_contract() -> None:
    publish = Case(Kind.PUBLISH, 10, 16, partitions=2, window=5, ack_policy=AckPolicy.NONE)
    assert " ".join(publish.words("host:1", "stream", 7)) == (
        "publish --servers host:1 --stream stream --partitions 2"
        " --messages 7 --message-size 16 --window 5 --ack-policy none"
    )
    consume = Case(Kind.CONSUME, 10, partitions=4)
    assert " ".join(consume.words("host:1", "stream", 7)) == (
        "consume --servers host:1 --stream stream --partitions 4 --expected 7 --start earliest"
    )
    latency = Case(Kind.LATENCY, 10, rate=1000, duration=2.5)
    assert " ".join(latency.words("host:1", "stream", 7)) == (
        "latency --servers host:1 --stream stream --rate 1000 --duration 2.5"
    )


@given(messages=st.integers(1, 10**6), speed=st.floats(0.1, 1e7))
def test_slow_clients_get_less_and_no_one_more(messages: int, speed: float) -> None:
    case = Case(Kind.CONSUME, messages)
    count = run_messages(case, speed)
    assert 1 <= count <= messages
    if messages <= PATIENCE * speed:
        assert count == messages
    elif speed > 100:
        assert SHORTENED * 0.9 <= count / speed <= SHORTENED * 1.1
    assert 1 <= probe_messages(case) <= messages


def test_flags_are_understood() -> None:
    flags = parse_flags(
        [
            *("publish", "--server", "embedded", "--rounds", "2", "--peers", "ours, grpcio"),
            *("--window", "1,1_000", "--ack-policy", "all,none", "--quick", "--output", "json"),
        ]
    )
    assert (flags.name, flags.server, flags.rounds, flags.as_json) == (
        "publish",
        "embedded",
        2,
        True,
    )
    assert flags.clients == ("ours", "grpcio")
    assert flags.choice == Choice(
        windows=(1, 1000), ack_policies=(AckPolicy.ALL, AckPolicy.NONE), quick=True
    )


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["nothing"], "nothing"),
        (["publish", "--window", "0"], "at least 1"),
        (["publish", "--ack-policy", "maybe"], "maybe"),
    ],
)
def test_wrong_flags_are_told(
    words: list[str], what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parse_flags(words)
    assert what in capsys.readouterr().err
