"""Fuzzes everything that takes in bytes of others: `python -m hostile.fuzz --seconds 60 --seed 1`.

With atheris, if that is installed, by what the code does with the bytes; without it by spoiling
sound examples at random. An input that does harm is written to the folder of found inputs, where
the tests try it from then on; the exit code is 1.
"""

from __future__ import annotations

import argparse
import hashlib
import multiprocessing
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

atheris: Any = import_module("atheris") if find_spec("atheris") else None

FOUND: Final = Path(__file__).parent / "found"
"""Inputs that once did harm, by target."""
SLOW: Final = 2.0
"""Seconds that no input may take."""


def try_out(name: str, data: bytes) -> None:
    """Give an input to a target; keep it if it does harm.

    Raises:
        Exception: it does.
    """
    from hostile.targets import TARGETS  # noqa: PLC0415 - atheris has to see it being imported

    began = time.monotonic()
    try:
        TARGETS[name](data)
        if time.monotonic() - began > SLOW:
            raise TimeoutError(f"{len(data)} bytes take more than {SLOW:g} s")
    except Exception:
        folder = FOUND / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / hashlib.sha256(data).hexdigest()[:16]).write_bytes(data)
        raise


def at_random(name: str, seconds: float, seed: int) -> int:
    """Spoil samples for so long; return how many inputs were tried."""
    from hostile.mutation import mutated  # noqa: PLC0415 - as above
    from hostile.targets import SEEDS  # noqa: PLC0415 - as above

    chance = random.Random(f"{seed}/{name}")
    end = time.monotonic() + seconds
    tried = 0
    while time.monotonic() < end:
        try_out(name, mutated(chance, SEEDS[name]))
        tried += 1
    return tried


def _guided(name: str, seconds: float, seed: int) -> None:
    """Fuzz one target with atheris; does not return."""
    with atheris.instrument_imports(include=["liftbridge_aio"]):
        from hostile.targets import SEEDS  # noqa: PLC0415 - it is instrumented now
    corpus = Path(tempfile.mkdtemp(prefix="fuzz-"))
    for number, sample in enumerate(SEEDS[name]):
        (corpus / f"{number}").write_bytes(sample)
    arguments = [f"-max_total_time={max(int(seconds), 1)}", f"-seed={seed}", "-max_len=4096"]
    atheris.Setup(
        [sys.argv[0], *arguments, f"-artifact_prefix={corpus}/", str(corpus)],
        lambda data: try_out(name, data),
    )
    atheris.Fuzz()


def _run_guided(names: list[str], seconds: float, seed: int) -> Iterator[tuple[str, int]]:
    # Each in a process of its own, since atheris ends the one that it runs in.
    context = multiprocessing.get_context("spawn")
    for name in names:
        process = context.Process(target=_guided, args=(name, seconds, seed))
        process.start()
        process.join(seconds + 120.0)
        if process.is_alive():
            process.kill()
            process.join()
        yield name, process.exitcode or 0


def main(arguments: list[str] | None = None) -> int:
    """Fuzz; return 1 if an input did harm."""
    from hostile.targets import TARGETS  # noqa: PLC0415 - as above

    parser = argparse.ArgumentParser(prog="python -m hostile.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="for all targets together")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--target", choices=sorted(TARGETS), action="append")
    parser.add_argument("--at-random", action="store_true", help="even where atheris is there")
    told: Any = parser.parse_args(arguments)
    names: list[str] = told.target or sorted(TARGETS)
    each = told.seconds / len(names)
    if atheris is not None and not told.at_random:
        results = dict(_run_guided(names, each, told.seed))
        for name, code in results.items():
            sys.stdout.write(f"{name:12} {'harmed' if code else 'fine'}\n")
        return int(any(results.values()))
    for name in names:
        sys.stdout.write(f"{name:12} {at_random(name, each, told.seed):10,} inputs\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
