from __future__ import annotations

import json
from typing import Any

import pytest

from benchmarks import over_nsq
from benchmarks.command import main


def test_our_nsq_client_is_measured(
    nsq_programs: None,  # noqa: ARG001 - builds nsqd
    capsys: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(over_nsq, "NSQ_PEERS", {})  # those are installed by hand
    assert main(("nsq", "--rounds", "1", "--messages", "500", "--output", "json")) == 0
    cases = json.loads(capsys.readouterr().out)["nsq"]
    assert [case["kind"] for case in cases] == ["publish", "publish", "consume"]
    for case in cases:
        [client] = case["clients"]
        assert client["client"] == "ours"
        assert [run["errors"] for run in client["runs"]] == [0]
