from __future__ import annotations

import json
from typing import Any

from benchmarks.cases import Case, Choice, Kind
from benchmarks.command import main
from benchmarks.over_nats import CLIENTS, GRPC, measure_over_nats
from benchmarks.summary import summarize
from benchmarks.table import columns, rows
from support.benchmark_runs import measured


def test_each_way_is_held_against_grpc() -> None:
    runs = {name: [measured(1000.0 * number)] for number, name in enumerate(CLIENTS, 1)}
    summary = summarize(Case(Kind.PUBLISH, 1000), runs, GRPC)
    table = rows(summary)
    assert [row[0] for row in table] == list(CLIENTS)
    assert [row[2][:4] for row in table] == ["1.00", "2.00", "3.00"]
    assert all(len(row) == len(columns(summary)) for row in table)


def test_the_embedded_broker_has_no_nats() -> None:
    told: list[str] = []
    assert list(measure_over_nats("embedded", Choice(), 1, told.append)) == []
    assert told == ["nats: the embedded broker has none"]


def test_both_ways_are_measured_on_a_real_server(server_binary: object, capsys: Any) -> None:
    assert server_binary
    words = ("nats", "--rounds", "1", "--window", "100", "--messages", "500", "--output", "json")
    assert main(words) == 0
    [case] = json.loads(capsys.readouterr().out)["nats"]
    assert [client["client"] for client in case["clients"]] == list(CLIENTS)
    for client in case["clients"]:
        assert client["messages"] == 500
        assert [run["errors"] for run in client["runs"]] == [0]
