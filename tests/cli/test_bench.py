"""`liftbridge-aio bench` against the embedded broker, and what it makes of what it measured."""

from __future__ import annotations

import json
import statistics
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.conftest import Run
from liftbridge_aio.cli.bench import BenchFigures

RATES = {
    *("duration", "total_messages", "total_bytes", "messages_per_second", "bytes_per_second"),
    *("mb_per_second", "errors"),
}
LATENCIES = {f"latency_{name}" for name in ("min", "mean", "p50", "p95", "p99", "p999", "max")}


@pytest.mark.parametrize("window", ["--window", "--pub-batch"])
def test_publishing_is_measured_and_the_messages_are_there(
    run: Run, stream: str, window: str
) -> None:
    done = run(
        *("bench", "publish", "--stream", stream, "--create-stream", "--messages", "50"),
        *("--message-size", "10", window, "7", "--partitions", "2", "--output", "json"),
    )
    figures: dict[str, Any] = json.loads(done.out)
    assert set(figures) == RATES | LATENCIES
    assert (figures["total_messages"], figures["total_bytes"], figures["errors"]) == (50, 500, 0)
    assert 0 < figures["latency_min"] <= figures["latency_p50"] <= figures["latency_max"]
    assert figures["messages_per_second"] == pytest.approx(50 / figures["duration"], rel=0.01)
    for partition in ("0", "1"):
        described = run(
            "subscribe", stream, "--partition", partition, "--start", "earliest", "--stop", "latest"
        )
        assert len(described.out.splitlines()) == 25


def test_one_at_a_time_is_the_default_and_without_acks_no_latencies(run: Run, stream: str) -> None:
    words = ("bench", "publish", "--stream", stream, "--create-stream", "--messages", "5")
    assert set(json.loads(run(*words, "--json").out)) == RATES | LATENCIES
    assert set(json.loads(run(*words, "--json", "--ack-policy", "none").out)) == RATES
    read = run("subscribe", stream, "--start", "earliest", "--stop", "latest")
    assert len(read.out.splitlines()) == 10


def test_without_flags_it_measures_for_seconds_on_a_stream_of_its_own(run: Run) -> None:
    began = time.monotonic()
    published = run("bench", "publish", "--json").json
    assert published["total_messages"] > 0
    read = run("bench", "consume", "--json").json
    assert read["total_messages"] == published["total_messages"]
    assert time.monotonic() - began < 2 * 5


@pytest.mark.parametrize("window", ["1", "100"])
def test_publishing_ends_after_the_duration(run: Run, stream: str, window: str) -> None:
    words = ("bench", "publish", "--stream", stream, "--create-stream", "--duration", "300ms")
    figures = run(*words, "--window", window, "--json").json
    assert 0.3 <= figures["duration"] < 3
    assert figures["total_messages"] > 0


def test_latencies_have_the_unit_that_suits_them() -> None:
    figures = BenchFigures(3, 3, 1.0, latencies=(12_345, 1_234_567, 2_500_000_000))
    rows = dict(figures.rows())
    assert rows["latency min of acks"] == "12.3 µs"
    assert rows["latency p50 of acks"] == "1.23 ms"
    assert rows["latency max of acks"] == "2.50 s"


def test_one_after_the_other_the_times_of_the_calls_make_up_the_run(run: Run, stream: str) -> None:
    done = run(
        *("bench", "publish", "--stream", stream, "--create-stream", "--messages", "50", "--json")
    )
    figures = json.loads(done.out)
    assert 0.5 < figures["latency_mean"] * 50 / 1e6 / figures["duration"] <= 1


def test_publishers_have_a_window_each_and_a_new_stream_its_subject(run: Run, stream: str) -> None:
    done = run(
        *("bench", "publish", "--stream", stream, "--create-stream", "--subject", f"{stream}.in"),
        *("--messages", "40", "--concurrent", "20", "--json"),
    )
    figures = json.loads(done.out)
    assert (figures["total_messages"], figures["errors"]) == (40, 0)
    # One after the other, the times of all would fit into the run.
    assert figures["latency_mean"] * 40 / 1e6 > figures["duration"]
    assert f"{stream}.in" in run("streams", "describe", stream).out


def test_the_stream_goes_at_the_end_if_that_is_wanted(run: Run, stream: str) -> None:
    run(
        *("bench", "publish", "--stream", stream, "--messages", "1"),
        *("--create-stream", "--delete-stream"),
    )
    assert stream in run("streams", "describe", stream, code=1).err


def test_reading_is_measured_until_as_many_have_come_as_expected(run: Run, stream: str) -> None:
    run("publish", stream, "one", "two", "three", "--create")
    done = run("bench", "consume", "--stream", stream, "--expected", "2", "--output", "json")
    figures = json.loads(done.out)
    assert set(figures) == RATES
    assert (figures["total_messages"], figures["total_bytes"]) == (2, 6)
    later = run(
        *("bench", "consume", "--stream", stream, "--start", "offset:2", "--expected", "1"),
        "--json",
    )
    assert json.loads(later.out)["total_bytes"] == 5


def test_reading_ends_in_time_and_fewer_than_expected_is_a_failure(run: Run, stream: str) -> None:
    run("publish", stream, "one", "--create")
    words = ("bench", "consume", "--stream", stream, "--duration", "1s", "--json")
    ended = json.loads(run(*words).out)
    assert ended["total_messages"] == 1
    assert ended["duration"] < 1
    short = run(*words, "--expected", "2", code=1)
    assert json.loads(short.out)["total_messages"] == 1
    assert "1 of 2 messages" in short.err


def test_people_get_a_table(run: Run, stream: str) -> None:
    done = run("bench", "publish", "--stream", stream, "--create-stream", "--messages", "3")
    assert "messages per second" in done.out
    assert "latency p99 of acks" in done.out


def test_a_stream_that_is_not_there_is_told(run: Run, stream: str) -> None:
    words = ("bench", "publish", "--stream", stream, "--messages", "3", "--timeout", "300ms")
    failed = run(*words, "--json", code=1)
    assert json.loads(failed.out)["errors"] == 3
    assert "3 messages failed" in failed.err
    assert stream in failed.err


def test_reading_a_missing_stream_fails_however_short_the_run_was_to_be(
    run: Run, stream: str
) -> None:
    limits = ("--duration", "10ms", "--timeout", "300ms")
    failed = run("bench", "consume", "--stream", stream, *limits, "--json", code=1)
    assert failed.out == ""
    assert stream in failed.err
    assert len(failed.err.splitlines()) == 1


@given(st.lists(st.integers(0, 10**12), min_size=1))
def test_latencies_are_in_order_and_their_mean_is_the_mean(latencies: list[int]) -> None:
    figures = BenchFigures(1, 1, 1.0, latencies=latencies).as_json()
    steps = [figures[f"latency_{name}"] for name in ("min", "p50", "p95", "p99", "p999", "max")]
    assert steps == sorted(steps)
    assert steps[0] == round(min(latencies) / 1000, 1)
    assert steps[-1] == round(max(latencies) / 1000, 1)
    assert figures["latency_mean"] == pytest.approx(statistics.fmean(latencies) / 1000, abs=0.06)


def test_percentiles_are_the_nearest_rank() -> None:
    figures = BenchFigures(1, 1, 1.0, latencies=[n * 1000 for n in range(1, 1001)]).as_json()
    assert [figures[f"latency_{name}"] for name in ("p50", "p95", "p99", "p999")] == [
        500,
        950,
        990,
        999,
    ]


def test_nothing_in_no_time_is_no_error() -> None:
    assert BenchFigures(0, 0, 0.0).as_json()["messages_per_second"] == 0
