"""Our codec and the splitting of frames by themselves, timed by pyperf in processes of its own."""

from __future__ import annotations

import json
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from .own_programs import environment, module
from .summary import Spread

CODEC: Final = "benchmarks.codec_timings"
_TIMEOUT: Final = 600.0


class CodecProgramFailed(Exception):
    """pyperf did not come to its end; the text is what it said."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Time of an operation for one message.

    Attributes:
        name: What.
        nanoseconds: Over the values that pyperf took.
    """

    name: str
    nanoseconds: Spread

    def as_json(self) -> dict[str, Any]:
        """As the result files have it."""
        return {"name": self.name, "nanoseconds": self.nanoseconds.as_json()}


COLUMNS: Final = ("for each message of 250 B", "ns", "least", "most")


def codec_row(timing: Timing) -> tuple[str, ...]:
    """A row of the table."""
    spread = timing.nanoseconds
    return (
        timing.name,
        *(f"{value:,.0f}" for value in (spread.median, spread.least, spread.most)),
    )


def measure_codec(*, quick: bool, program: str = CODEC) -> list[Timing]:
    """Time every part.

    Args:
        quick: A single value each: shows that it works, and no more.
        program: A module of ours that times something with pyperf.

    Raises:
        CodecProgramFailed: pyperf failed.
    """
    with tempfile.TemporaryDirectory(prefix="benchmarks-") as folder:
        results = Path(folder) / "pyperf.json"
        effort = "--debug-single-value" if quick else "--fast"
        try:
            done = subprocess.run(  # noqa: S603 - no shell, and our own words
                [
                    *module(program),
                    *(effort, "--quiet", "--inherit-environ", "PYTHONPATH"),
                    *("--output", str(results)),
                ],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
                env=environment(),
                text=True,
                timeout=_TIMEOUT,
            )
        except subprocess.TimeoutExpired as error:
            raise CodecProgramFailed(f"pyperf was not done within {_TIMEOUT:.0f} s") from error
        if done.returncode:
            raise CodecProgramFailed((done.stderr or done.stdout)[-1000:])
        return timings(results.read_text())


def timings(results: str) -> list[Timing]:
    """Read what pyperf wrote: its JSON, in which values are seconds.

    What all benchmarks of a file have in common stands only once there, even a name.
    """
    suite = json.loads(results)
    return [
        Timing(
            {**suite.get("metadata", {}), **benchmark.get("metadata", {})}["name"],
            Spread.of([v * 1e9 for run in benchmark["runs"] for v in run.get("values", ())]),
        )
        for benchmark in suite["benchmarks"]
    ]
