"""Parts shared by the Python programs: arguments, line of JSON, messages at a fixed rate."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.cases import Case, Choice, Kind, cases_of
from benchmarks.outcome import Unsupported as CannotDo
from benchmarks.outcome import parse as parse_output
from benchmarks.peers.measuring import (
    RANKS,
    WARM_UP,
    Outcome,
    Settings,
    Watch,
    main,
    parse,
    percentiles,
)
from benchmarks.peers.pacing import paced, stamp, stamped

CASES = [case for kind in Kind for case in cases_of(kind, Choice())]


def run(capsys: pytest.CaptureFixture[str], words: Sequence[str], outcome: Outcome) -> str:
    main("a client", "pytest", {"publish": lambda _: outcome}, words)
    return capsys.readouterr().out


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.title)
def test_programs_understand_every_case(case: Case) -> None:
    settings = parse(case.words("host:1", "stream", 700))

    assert (settings.command, settings.servers) == (case.kind.value, ("host:1",))
    assert settings.stream == "stream"
    if case.kind is Kind.LATENCY:
        assert (settings.rate, settings.due) == (case.rate, case.messages)
        return
    assert settings.partitions == case.partitions
    if case.kind is Kind.CONSUME:
        assert settings.expected == 700
        return
    assert (settings.messages, len(settings.value)) == (700, case.message_size)
    assert (settings.window, settings.ack_policy) == (case.window, case.ack_policy.value)


def test_both_sides_mean_the_same_warm_up() -> None:
    assert Case(Kind.PUBLISH, 1).server_messages == WARM_UP


@pytest.mark.parametrize(("policy", "unacked"), [("leader", 0), ("all", 0), ("none", 97)])
def test_the_last_message_to_each_partition_is_acked(policy: str, unacked: int) -> None:
    settings = Settings("publish", (), "", partitions=3, messages=100, ack_policy=policy)
    assert settings.unacked == unacked


def test_the_harness_understands_what_a_program_says(capsys: pytest.CaptureFixture[str]) -> None:
    outcome = Outcome(10, 2.0, 0.5, errors=1, latencies={"ack_latency": [3_000, 1_000]})
    said = parse_output(run(capsys, ["publish", "--servers", "h:1", "--stream", "s"], outcome))

    assert not isinstance(said, CannotDo)
    assert (said.messages, said.messages_per_second, said.client_cpu_seconds) == (10, 5.0, 0.5)
    assert (said.errors, said.version) == (1, pytest.__version__)
    assert (said.latencies["ack_latency_p50"], said.latencies["ack_latency_max"]) == (1.0, 3.0)


def test_the_harness_understands_what_a_client_cannot_do(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["latency", "--servers", "h:1", "--stream", "s"]
    said = parse_output(run(capsys, words, Outcome(1, 1.0, 1.0)))
    assert said == CannotDo("a client cannot latency")


@given(st.lists(st.integers(0, 10**10), min_size=1))
def test_percentiles_are_the_least_that_so_many_do_not_exceed(nanoseconds: list[int]) -> None:
    found = percentiles(nanoseconds)

    for name, rank in RANKS.items():
        value = round(found[name] * 1_000)
        assert value in nanoseconds
        needed = rank * len(nanoseconds)
        assert sum(each <= value for each in nanoseconds) >= needed
        assert sum(each < value for each in nanoseconds) < needed
    assert found["max"] == max(nanoseconds) / 1_000


def test_a_watch_counts_the_work_of_this_process() -> None:
    watch = Watch()
    while watch.stop(1).cpu_seconds < 0.01:
        pass
    outcome = watch.stop(5)
    assert outcome.messages == 5
    assert 0.01 <= outcome.cpu_seconds <= outcome.seconds * 4


@given(st.integers(0, 2**53), st.integers(16, 300))
def test_a_value_carries_when_it_was_due(due: int, size: int) -> None:
    value = stamped(due, size)
    assert (stamp(value), len(value)) == (due, size)


def check_rate(due: list[int], seen: list[int], began: int) -> None:
    assert [later - earlier for earlier, later in itertools.pairwise(due)] == [500_000] * 39
    assert began + 500_000 <= due[0]
    assert all(at >= when for when, at in zip(due, seen, strict=True))


def test_messages_are_due_at_the_rate_and_never_early() -> None:
    began = time.monotonic_ns()
    due, seen = zip(*((each, time.monotonic_ns()) for each in paced(2_000, 40)), strict=True)
    check_rate(list(due), list(seen), began)
