"""Times the parsing of Server-Sent Events with pyperf, for each byte; flags are those of pyperf."""

from __future__ import annotations

import pyperf

from benchmarks.codec_timings import timed
from benchmarks.sse_parts import parts


def main() -> None:
    """Time everything."""
    runner = pyperf.Runner()
    for name, parsing in parts().items():
        runner.bench_time_func(name, timed(parsing.run), inner_loops=parsing.size)


if __name__ == "__main__":
    main()
