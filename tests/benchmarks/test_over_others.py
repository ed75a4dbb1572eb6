"""Benchmarks of our other clients and of the gateway: each runs once and loses nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from benchmarks import over_queue, sse_parts
from benchmarks.codec import Timing
from benchmarks.over_durable_streams import APPENDING, READING
from benchmarks.over_gateway import BARE, GATEWAY, REFERENCE
from benchmarks.over_nsq import NSQ
from benchmarks.over_stan import STAN
from benchmarks.summary import Spread
from support.benchmark_runs import run_command


def check(case: dict[str, Any], *clients: str, messages: int = 500) -> None:
    """Check that these clients took part and lost none of so many messages."""
    assert [client["client"] for client in case["clients"]] == list(clients)
    for client in case["clients"]:
        assert client["messages"] == messages
        assert [run["errors"] for run in client["runs"]] == [0]


@pytest.fixture
def ours_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure no other client: they are installed by hand."""
    alone = {"NSQ": NSQ, "STAN": STAN, "APPENDING": APPENDING, "READING": READING}
    for name, comparison in alone.items():
        monkeypatch.setattr(f"benchmarks.command.{name}", replace(comparison, peers={}))


@pytest.mark.usefixtures("durable_streams_packages", "ours_alone")
def test_durable_streams(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    timing = Timing("one kind", Spread(1.0, 2.0, 4.0))  # pyperf is installed by hand, too
    monkeypatch.setattr("benchmarks.sse.measure_codec", lambda **_: [timing])
    found = run_command(capsys, "durable-streams")
    one_by_one, batches, reading = found["durable_streams"]
    for case in (one_by_one, batches):
        assert (case["kind"], case["reference"]) == ("publish", "httpx2")
        check(case, "ours")
    assert one_by_one["clients"][0]["latency_p50"]["median"] > 0
    # The warm-up of who filled it included.
    check(reading, "ours", "ours-batches", "json.loads", messages=5 * (500 + 2_000))
    assert all(client["ratio"]["median"] > 0 for client in reading["clients"])
    assert found["sse"] == [
        {"name": "one kind", "megabytes_per_second": {"min": 250, "median": 500, "max": 1000}}
    ]


@pytest.mark.parametrize("name", sse_parts.parts())
def test_every_body_is_parsed_whole(name: str) -> None:
    parsing = sse_parts.parts()[name]
    assert parsing.size > 1_000_000
    parsing.run()


@pytest.mark.usefixtures("durable_streams_packages")
def test_gateway(capsys: Any) -> None:
    found = run_command(capsys, "gateway", "--server", "embedded", "--quick")["gateway"]
    assert [each["server"] for each in found] == [GATEWAY, BARE, REFERENCE, GATEWAY, REFERENCE]
    assert [each["ratio"] is None for each in found] == [False, True, False, False, True]
    assert all(each["values"]["median"] > 0 for each in found)


@pytest.mark.usefixtures("nsq_programs", "ours_alone")
def test_nsq(capsys: Any) -> None:
    cases = run_command(capsys, "nsq")["nsq"]
    assert [case["kind"] for case in cases] == ["publish", "publish", "consume"]
    for case in cases:
        check(case, "ours")


def test_queue(capsys: Any) -> None:
    [case] = run_command(capsys, "queue", "--server", "embedded")["queue"]
    assert case["reference"] == "subscription"
    check(case, *over_queue.CLIENTS)


@pytest.mark.usefixtures("streaming_binary", "ours_alone")
def test_nats_streaming(capsys: Any) -> None:
    cases = run_command(capsys, "stan")["stan"]
    kinds = [("publish", 1_000), ("publish", 1), ("consume", None)]
    assert [(case["kind"], case.get("window")) for case in cases] == kinds
    for case in cases:
        assert case["reference"] == "stan.go"
        check(case, "ours")
        assert ("latency_p99" in case["clients"][0]) == (case.get("window") == 1)
