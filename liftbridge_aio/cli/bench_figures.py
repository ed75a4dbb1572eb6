"""The figures of `liftbridge-aio bench`, with the keys of Liftbridge's bench tools. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

_QUANTILES: Final = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "p999": 0.999}
_MIB: Final = 2**20


@dataclass(frozen=True, slots=True)
class BenchFigures:
    """A run of a benchmark.

    Attributes:
        messages: Read, or published and acked.
        size: Bytes of their values, together.
        seconds: From the first call to the last message or ack.
        errors: Publishes that failed.
        latencies: Nanoseconds from each publish to its ack, in any order; empty if not measured.
    """

    messages: int
    size: int
    seconds: float
    errors: int = 0
    latencies: Sequence[int] = ()

    def as_json(self) -> dict[str, float | int]:
        """Return each figure by its key; `duration` in seconds, latencies in microseconds."""
        seconds = self.seconds
        rate = self.messages / seconds if seconds else 0.0
        throughput = self.size / seconds if seconds else 0.0
        return {
            "duration": round(seconds, 6),
            "total_messages": self.messages,
            "total_bytes": self.size,
            "messages_per_second": round(rate, 1),
            "bytes_per_second": round(throughput, 1),
            "mb_per_second": round(throughput / _MIB, 3),
            **self._latencies(),
            "errors": self.errors,
        }

    def rows(self) -> list[tuple[str, str]]:
        """Return names and values for a table."""
        figures = self.as_json()
        rows = [
            ("messages", f"{self.messages:,}"),
            ("duration", f"{self.seconds:,.3f} s"),
            ("messages per second", f"{figures['messages_per_second']:,.0f}"),
            ("MiB per second", f"{figures['mb_per_second']:,.2f}"),
        ]
        rows += [
            (f"{key.replace('_', ' ')} of acks", f"{value:,.0f} µs")
            for key, value in figures.items()
            if key.startswith("latency_")
        ]
        return [*rows, ("errors", f"{self.errors:,}")]

    def _latencies(self) -> dict[str, float]:
        ordered = sorted(self.latencies)
        if not ordered:
            return {}
        figures = {
            "min": ordered[0],
            "mean": sum(ordered) / len(ordered),
            **{name: _nearest_rank(ordered, share) for name, share in _QUANTILES.items()},
            "max": ordered[-1],
        }
        return {f"latency_{name}": round(value / 1000, 1) for name, value in figures.items()}


def _nearest_rank(ordered: Sequence[int], share: float) -> int:
    return ordered[max(math.ceil(share * len(ordered)) - 1, 0)]
