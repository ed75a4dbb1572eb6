from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.over_stan import STAN
from support.benchmark_runs import run_command


def test_our_client_of_nats_streaming_is_measured(
    streaming_binary: Path,
    capsys: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert streaming_binary.exists()
    # The others are installed by hand.
    monkeypatch.setattr("benchmarks.command.STAN", replace(STAN, peers={}))
    cases = run_command(capsys, "stan")["stan"]
    assert [(case["kind"], case.get("window")) for case in cases] == [
        ("publish", 1_000),
        ("publish", 1),
        ("consume", None),
    ]
    for case in cases:
        assert case["reference"] == "stan.go"
        [client] = case["clients"]
        assert (client["client"], client["messages"]) == ("ours", 500)
        assert [run["errors"] for run in client["runs"]] == [0]
        assert ("latency_p99" in client) == (case.get("window") == 1)
