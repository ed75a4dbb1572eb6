"""`python -m chaos`: faults against three real nodes, or a soak, and what came of it."""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
from pathlib import Path
from typing import Any

from chaos.run import PROGRAMS, RECOVERY_BOUND, chaos
from chaos.soak import soak


def main() -> int:
    """Run, print, and say by the exit status whether everything held."""
    parser = argparse.ArgumentParser(prog="chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="how long (default: 10)")
    parser.add_argument("--seed", type=int, help="the plan to play (default: a new one)")
    parser.add_argument("--program", action="append", default=[], help="run this one only")
    parser.add_argument(
        "--bound",
        type=float,
        default=RECOVERY_BOUND,
        help=f"seconds that programs get to work again (default: {RECOVERY_BOUND:g})",
    )
    parser.add_argument("--soak", action="store_true", help="no faults: see whether memory grows")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to write all figures")
    arguments = parser.parse_args()
    ok, text, figures = (
        _soak(arguments.minutes * 60)
        if arguments.soak
        else _chaos(arguments.seed, arguments.minutes * 60, arguments.bound, arguments.program)
    )
    _tell(text)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n")
    return 0 if ok else 1


def _chaos(
    seed: int | None, seconds: float, bound: float, names: list[str]
) -> tuple[bool, str, dict[str, Any]]:
    chosen = random.SystemRandom().randrange(10**6) if seed is None else seed
    programs = [each for each in PROGRAMS if not names or each.__name__ in names]
    verdict = asyncio.run(chaos(chosen, seconds, _tell, bound, programs))
    return not verdict.failures, verdict.text(), verdict.as_json()


def _soak(seconds: float) -> tuple[bool, str, dict[str, Any]]:
    soaked = asyncio.run(soak(seconds, _tell))
    return not soaked.failures, soaked.text(), soaked.as_json()


def _tell(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
