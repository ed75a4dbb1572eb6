"""`python -m simulation`: seeds of the simulated world, and a table of what they have shown."""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from .guards import GUARDS, take_out

if TYPE_CHECKING:
    from .campaign import Result

MOST_SEEDS: Final = 500
"""Seeds within which a guard must be missed."""


def main() -> int:
    """Run seeds; return 1 if one failed."""
    parser = argparse.ArgumentParser(prog="simulation", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--count", type=int, default=1, help="how many seeds")
    parser.add_argument("--hours", type=float, help="simulated hours, instead of --count")
    parser.add_argument("--seconds", type=float, default=60.0, help="simulated seconds of faults")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--program", action="append", default=[], help="run this one")
    parser.add_argument(
        "--without", choices=GUARDS, help="take out a guard; stop when it is missed"
    )
    parser.add_argument("--faults", help="the numbers of the faults of one seed, such as 3,5")
    parser.add_argument("--flaws", help="those of the servers, such as loses_answers, or none")
    parser.add_argument("--guards", action="store_true", help="find what each guard is good for")
    parser.add_argument("--shrink", action="store_true", help="find the shortest run that fails")
    options = parser.parse_args()
    if options.guards:
        return find_guards()
    if options.without:
        take_out(options.without)
    # After that, as they import the package.
    from .campaign import Run, shrink, simulate_all  # noqa: PLC0415

    faults = None
    if options.faults is not None:
        faults = tuple(int(each) for each in options.faults.split(",") if each)
    flaws = None
    if options.flaws is not None:
        flaws = tuple(each for each in options.flaws.split(",") if each not in {"", "none"})
    if options.hours:
        options.count = round(options.hours * 3600 / options.seconds)
    programs = tuple(options.program)
    seeds = range(options.seed, options.seed + options.count)
    runs = [Run(seed, options.seconds, faults, programs, flaws) for seed in seeds]
    if options.shrink:
        shortest = shrink(runs[0], say)
        say(f"the shortest run that fails: {shortest.command}")
        for each in shortest.planned:
            say(f"  fault {each}")
        return 1
    results = []
    for result in simulate_all(runs, options.jobs):
        say(str(result))
        results.append(result)
        if options.without and result.errors:  # it is missed
            break
    say(table(results))
    return 1 if any(each.errors for each in results) else 0


def find_guards() -> int:
    """Take out each guard in turn, and say which seed misses it."""
    missed = 0
    for name, guard in GUARDS.items():
        words: tuple[str, ...]
        words = ("--without", name, "--program", guard.program, "--count", str(MOST_SEEDS))
        if guard.flaws:
            words += ("--flaws", guard.flaws)
        found = subprocess.run(
            [sys.executable, "-m", "simulation", *words],
            capture_output=True,
            text=True,
            check=False,
        )
        seeds = found.stdout.splitlines()
        failed = next((each for each in seeds if each.startswith("  ")), "  not found")
        missed += found.returncode == 1
        count = sum(each.startswith("seed ") for each in seeds)
        say(f"| {name} | {guard.what} | {guard.program} | {count} |{failed[1:120]} |")
    return 0 if missed == len(GUARDS) else 1


def say(text: str) -> None:
    """Write a line at once."""
    print(text, flush=True)  # noqa: T201


def table(results: Sequence[Result]) -> str:
    """Return what was simulated, the faults by kind, and how long programs took to recover."""
    hours = sum(each.simulated for each in results) / 3600
    faults = Counter(kind for each in results for kind in each.kinds)
    recovered = defaultdict(list)
    for each in results:
        for program, seconds in each.recovered.items():
            recovered[program].append(seconds)
    published = sum(each.published for each in results)
    failed = [each.run.seed for each in results if each.errors]
    lines = [
        f"{len(results)} seeds, {hours:.2f} simulated hours, {published} orders acked",
        f"failed: {failed or 'none'}",
        ", ".join(f"{kind} {count}" for kind, count in sorted(faults.items())),
        f"{'recovery after the last fault, s':<34}{'runs':>6}{'median':>8}{'p99':>8}{'worst':>8}",
    ]
    for program, times in sorted(recovered.items()):
        times.sort()
        p99 = times[min(len(times) - 1, round(len(times) * 0.99))]
        figures = f"{statistics.median(times):>8.1f}{p99:>8.1f}{times[-1]:>8.1f}"
        lines.append(f"{program:<34}{len(times):>6}{figures}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
