"""Runs as programs report them, to make summaries of, and what the command says of tiny ones."""

from __future__ import annotations

import json
from typing import Any

from benchmarks.command import main
from benchmarks.outcome import Outcome
from benchmarks.summary import Measured


def measured(
    rate: float,
    cpu: float = 5.0,
    *,
    messages: int = 1_000,
    errors: int = 0,
    server_cpu: float | None = None,
    server_messages: int = 0,
    **latencies: float,
) -> Measured:
    """A run at so many messages a second, with processor time in microseconds for each."""
    outcome = Outcome(
        version="v1",
        messages=messages,
        seconds=messages / rate,
        messages_per_second=rate,
        client_cpu_seconds=cpu * messages / 1e6,
        errors=errors,
        latencies=latencies,
    )
    return Measured(outcome, server_cpu, server_messages)


def run_command(capsys: Any, name: str, *words: str) -> dict[str, Any]:
    """Run a benchmark of one round with few messages; its result as JSON."""
    usual = ("--rounds", "1", "--messages", "500", "--output", "json")
    assert main((name, *words, *usual)) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found
