from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import sse_parts
from benchmarks.codec import Timing
from benchmarks.over_durable_streams import APPENDING, READING
from benchmarks.summary import Spread
from support.benchmark_runs import run_command


def test_our_client_of_durable_streams_is_measured(
    durable_streams_packages: Path,
    capsys: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert durable_streams_packages.exists()
    # The others are installed by hand, as is pyperf.
    monkeypatch.setattr("benchmarks.command.APPENDING", replace(APPENDING, peers={}))
    monkeypatch.setattr("benchmarks.command.READING", replace(READING, peers={}))
    timing = Timing("one kind", Spread(1.0, 2.0, 4.0))
    monkeypatch.setattr("benchmarks.sse.measure_codec", lambda **_: [timing])
    found = run_command(capsys, "durable-streams")
    one_by_one, batches, reading = found["durable_streams"]
    for case in (one_by_one, batches):
        [client] = case["clients"]
        assert (case["kind"], case["reference"]) == ("publish", "httpx2")
        assert (client["client"], client["messages"]) == ("ours", 500)
        assert [run["errors"] for run in client["runs"]] == [0]
    assert one_by_one["clients"][0]["latency_p50"]["median"] > 0
    assert [client["client"] for client in reading["clients"]] == [
        "ours",
        "ours-batches",
        "json.loads",
    ]
    for client in reading["clients"]:
        assert client["messages"] == 5 * (500 + 2_000)  # the warm-up of who filled it included
        assert [run["errors"] for run in client["runs"]] == [0]
        assert client["ratio"]["median"] > 0
    assert found["sse"] == [
        {"name": "one kind", "megabytes_per_second": {"min": 250, "median": 500, "max": 1000}}
    ]


@pytest.mark.parametrize("name", sse_parts.parts())
def test_every_body_is_parsed_whole(name: str) -> None:
    parsing = sse_parts.parts()[name]
    assert parsing.size > 1_000_000
    parsing.run()
