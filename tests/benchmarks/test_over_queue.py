from __future__ import annotations

import json
from typing import Any

from benchmarks.command import main
from benchmarks.over_queue import CLIENTS


def test_each_way_acks_all_messages(capsys: Any) -> None:
    words = ("queue", "--server", "embedded", "--rounds", "1", "--messages", "500")
    assert main((*words, "--output", "json")) == 0
    [case] = json.loads(capsys.readouterr().out)["queue"]
    assert case["reference"] == "subscription"
    assert [client["client"] for client in case["clients"]] == list(CLIENTS)
    for client in case["clients"]:
        assert client["messages"] == 500
        assert [run["errors"] for run in client["runs"]] == [0]
