"""Growth of a figure that was sampled over time. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

FLAT_PER_MINUTE: Final = 0.1
"""MiB a minute that count as flat whatever the noise."""


@dataclass(frozen=True, slots=True)
class Trend:
    """A line through samples, by least squares. The figure is MiB, time is seconds."""

    samples: int
    first: float
    last: float
    slope: float
    """MiB per second."""
    noise: float
    """Distance of samples from the line: the root of the mean square."""
    grown: float
    """Rise of the line from the first sample to the last."""

    @property
    def flat(self) -> bool:
        """Return True if it rises by no more than twice the noise, or hardly at all."""
        return self.grown <= 2 * self.noise or self.slope * 60 <= FLAT_PER_MINUTE

    def __str__(self) -> str:
        return (
            f"{self.slope * 60:+.3f} MiB/min, {self.grown:+.2f} MiB in all, noise {self.noise:.2f}"
        )


def trend(samples: Sequence[tuple[float, float]]) -> Trend:
    """Draw the line through samples, each a time and a figure."""
    if not samples:
        return Trend(0, 0.0, 0.0, 0.0, 0.0, 0.0)
    times, figures = zip(*samples, strict=True)
    middle, mean = sum(times) / len(times), sum(figures) / len(figures)
    spread = sum((time - middle) ** 2 for time in times)
    rise = sum((time - middle) * (figure - mean) for time, figure in samples)
    slope = rise / spread if spread else 0.0
    rest = sum((figure - mean - slope * (time - middle)) ** 2 for time, figure in samples)
    return Trend(
        samples=len(samples),
        first=figures[0],
        last=figures[-1],
        slope=slope,
        noise=math.sqrt(rest / len(samples)),
        grown=slope * (times[-1] - times[0]),
    )
