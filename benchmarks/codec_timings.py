"""Times the codec and the splitting of frames with pyperf; flags are those of pyperf."""

from __future__ import annotations

from collections.abc import Callable
from itertools import repeat

import pyperf

from benchmarks.codec_parts import AT_A_TIME, alone, together


def timed(function: Callable[[], object]) -> Callable[[int], float]:
    """Function that pyperf calls to run another so many times."""

    def run(loops: int) -> float:
        began = pyperf.perf_counter()
        for _ in repeat(None, loops):
            function()
        return float(pyperf.perf_counter() - began)

    return run


def main() -> None:
    """Time everything."""
    runner = pyperf.Runner()
    for name, function in alone().items():
        runner.bench_time_func(name, timed(function))
    for name, function in together().items():
        runner.bench_time_func(name, timed(function), inner_loops=AT_A_TIME)


if __name__ == "__main__":
    main()
