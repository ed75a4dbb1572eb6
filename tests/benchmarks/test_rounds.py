"""Clients take turns on one server, and without a server nothing is measured."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest

from benchmarks.cases import Case, Kind
from benchmarks.clients import commands
from benchmarks.programs import Command
from benchmarks.rounds import Bench, ServerEnded

CASE = Case(Kind.PUBLISH, messages=100)


def said(text: str) -> Command:
    return lambda _: [sys.executable, "-c", text]


def bench(clients: dict[str, Command], told: list[str], rounds: int = 2) -> Bench:
    return Bench("embedded", clients, commands(["ours"])["ours"], rounds, told.append)


def test_clients_take_turns() -> None:
    line = {"version": "1", "messages": 100, "seconds": 1.0, "client_cpu_seconds": 0.5, "errors": 0}
    client, told = said(f"print({json.dumps(line)!r})"), list[str]()
    [summary] = bench({"a": client, "b": client}, told).measure([CASE])
    rounds = [text.split(": ")[1] for text in told if ": round " in text]
    assert rounds == [f"round {number} of 2, {name}" for number in (1, 2) for name in "ab"]
    assert [len(each.runs) for each in summary.clients] == [2, 2]


def _end_the_server(_: list[str]) -> list[str]:
    for process in Path("/proc").glob("[0-9]*"):
        try:
            parent = (process / "stat").read_text().rpartition(")")[2].split()[1]
            words = (process / "cmdline").read_text()
        except FileNotFoundError:
            continue  # it has just ended
        if int(parent) == os.getpid() and "benchmarks.embedded_nodes" in words:
            os.kill(int(process.name), signal.SIGKILL)
    return [sys.executable, "-c", "raise SystemExit('no server')"]


def test_without_its_server_nothing_more_is_tried() -> None:
    with pytest.raises(ServerEnded, match=r"publish 250 B.*no server"):
        list(bench({"a": _end_the_server}, []).measure([CASE]))
