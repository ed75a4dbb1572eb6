"""Speed at which our client of Durable Streams parses Server-Sent Events, measured by pyperf."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from .codec import measure_codec
from .summary import Spread
from .table import small

_PROGRAM: Final = "benchmarks.sse_timings"


@dataclass(frozen=True, slots=True)
class Speed:
    """Speed of an operation.

    Attributes:
        name: What.
        megabytes_per_second: Over the values that pyperf took.
    """

    name: str
    megabytes_per_second: Spread

    def as_json(self) -> dict[str, Any]:
        """As the result files have it."""
        return {
            "name": self.name,
            "megabytes_per_second": self.megabytes_per_second.as_json(),
        }


COLUMNS: Final = ("parsing of Server-Sent Events", "MB/s", "least", "most")


def sse_row(speed: Speed) -> tuple[str, ...]:
    """A row of the table."""
    spread = speed.megabytes_per_second
    return (speed.name, *map(small, (spread.median, spread.least, spread.most)))


def measure_sse(*, quick: bool) -> list[Speed]:
    """Time the parser on events and chunks of several sizes.

    Args:
        quick: A single value each: shows that it works, and no more.

    Raises:
        CodecProgramFailed: pyperf failed.
    """
    speeds = []
    for timing in measure_codec(quick=quick, program=_PROGRAM):
        each = timing.nanoseconds  # for one byte
        spread = Spread(1e3 / each.most, 1e3 / each.median, 1e3 / each.least)
        speeds.append(Speed(timing.name, spread))
    return speeds
