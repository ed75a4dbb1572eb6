"""Output of the programs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from benchmarks.outcome import BadOutput, Outcome, Unsupported, parse

LINE: dict[str, Any] = {
    "client": "ours",
    "version": "1.2",
    "messages": 1000,
    "seconds": 0.5,
    "messages_per_second": 2000.0,
    "client_cpu_seconds": 0.25,
    "errors": 0,
}


def test_a_line_is_read() -> None:
    line = LINE | {"latency_p50": 12.5, "ack_latency_p999": 7, "latency_note": "high"}
    assert parse(json.dumps(line) + "\n") == Outcome(
        version="1.2",
        messages=1000,
        seconds=0.5,
        messages_per_second=2000.0,
        client_cpu_seconds=0.25,
        errors=0,
        latencies={"latency_p50": 12.5, "ack_latency_p999": 7.0},
    )


def test_the_rate_is_worked_out_here_whatever_a_program_says() -> None:
    outcome = parse(json.dumps(LINE | {"messages_per_second": 9e9}))
    assert isinstance(outcome, Outcome)
    assert outcome.messages_per_second == 2000


def test_a_program_may_say_that_it_cannot_do_it() -> None:
    said = parse('{"client": "peer", "unsupported": "no such thing"}')
    assert said == Unsupported("no such thing")


@pytest.mark.parametrize(
    ("output", "what"),
    [
        ("", "not 0"),
        ("connecting\n" + json.dumps(LINE), "not 2"),
        ("done", "no JSON"),
        ("[1]", "no object"),
        (json.dumps({k: v for k, v in LINE.items() if k != "seconds"}), "seconds is None"),
        (json.dumps(LINE | {"errors": True}), "errors is True"),
        (json.dumps(LINE | {"client_cpu_seconds": -1}), "negative"),
        (json.dumps(LINE | {"seconds": float("nan")}), "seconds is nan"),
        (json.dumps(LINE | {"messages": 0}), "nothing was measured"),
        (json.dumps(LINE | {"seconds": 0}), "nothing was measured"),
    ],
)
def test_anything_else_is_refused(output: str, what: str) -> None:
    with pytest.raises(BadOutput, match=what):
        parse(output)
