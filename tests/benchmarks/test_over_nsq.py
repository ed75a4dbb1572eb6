from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from benchmarks.over_nsq import NSQ
from support.benchmark_runs import run_command


def test_our_nsq_client_is_measured(
    nsq_programs: None,  # noqa: ARG001 - builds nsqd
    capsys: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The others are installed by hand.
    monkeypatch.setattr("benchmarks.command.NSQ", replace(NSQ, peers={}))
    cases = run_command(capsys, "nsq")["nsq"]
    assert [case["kind"] for case in cases] == ["publish", "publish", "consume"]
    for case in cases:
        [client] = case["clients"]
        assert client["client"] == "ours"
        assert [run["errors"] for run in client["runs"]] == [0]
