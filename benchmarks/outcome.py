"""Result line of a client's program: one line of JSON. Pure."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import Any, Final

LATENCY_ENDS: Final = ("_p50", "_p90", "_p99", "_p999", "_max")


class BadOutput(ValueError):
    """A program did not say what it should; the text says what it said."""


@dataclass(frozen=True, slots=True)
class Unsupported:
    """A program cannot do this; the text says why."""

    reason: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """Measurements of one run.

    Attributes:
        version: Of the client.
        messages: Read, or published and acked.
        seconds: What that took.
        messages_per_second: The rate.
        client_cpu_seconds: Processor time of the client's process meanwhile, user and system.
        errors: Messages that failed.
        latencies: Percentiles in microseconds, by their key in the line.
    """

    version: str
    messages: int
    seconds: float
    messages_per_second: float
    client_cpu_seconds: float
    errors: int = 0
    latencies: dict[str, float] = field(default_factory=dict)


def parse(output: str) -> Outcome | Unsupported:
    """Read what a program printed.

    Raises:
        BadOutput: It is not one line of JSON with the keys of the contract.
    """
    lines = output.split("\n")
    lines = [line for line in lines if line.strip()]
    if len(lines) != 1:
        raise BadOutput(f"one line of JSON was expected, not {len(lines)}: {output[-200:]!r}")
    try:
        fields: Any = json.loads(lines[0])
    except ValueError:
        raise BadOutput(f"this is no JSON: {lines[0][:200]!r}") from None
    if not isinstance(fields, dict):
        raise BadOutput(f"this is no object: {lines[0][:200]!r}")
    if "unsupported" in fields:
        return Unsupported(str(fields["unsupported"]))
    messages, seconds = _number(fields, "messages"), _number(fields, "seconds")
    if messages < 1 or seconds <= 0:
        raise BadOutput(f"nothing was measured: {lines[0][:200]!r}")
    return Outcome(
        version=str(fields.get("version", "")),
        messages=int(messages),
        seconds=seconds,
        messages_per_second=messages / seconds,
        client_cpu_seconds=_number(fields, "client_cpu_seconds"),
        errors=int(_number(fields, "errors")),
        latencies={
            key: _number(fields, key)
            for key in fields
            if "latency" in key and key.endswith(LATENCY_ENDS)
        },
    )


def _number(fields: dict[str, Any], key: str) -> float:
    value = fields.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise BadOutput(f"{key} is {value!r}, not a number")
    if value < 0:
        raise BadOutput(f"{key} is negative: {value!r}")
    return float(value)
