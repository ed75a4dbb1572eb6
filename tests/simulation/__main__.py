"""`python -m simulation`: seeds of the simulated world, one after the other."""

from __future__ import annotations

import argparse
import logging
import sys
import time
import traceback

from .load import Load
from .world import World


def main() -> int:
    """Run seeds; return 1 if one failed."""
    parser = argparse.ArgumentParser(prog="simulation", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, default=1, help="how many seeds")
    parser.add_argument("--seconds", type=float, default=60.0, help="simulated seconds of faults")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    failed = 0
    for seed in range(options.seed, options.seed + options.count):
        began = time.perf_counter()
        world = World(seed)
        load = Load(world, options.seconds)
        try:
            world.run(load.run, seconds=options.seconds * 2 + 300)
        except Exception as error:  # noqa: BLE001 - a report for each seed
            failed += 1
            text = "".join(traceback.format_exception(error)) if options.count == 1 else str(error)
            print(f"seed {seed}: {type(error).__name__}: {text}")  # noqa: T201
        took = time.perf_counter() - began
        figures = f"{world.now:.0f} s in {took:.1f} s, {len(load.acked)} acked"
        print(f"seed {seed}: {figures}, {world.trace_hash()[:12]}")  # noqa: T201
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
