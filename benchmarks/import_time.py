"""Time to import our client, in interpreters of their own."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from typing import Final

from .own_programs import environment
from .summary import Spread


class ImportFailed(Exception):
    """Something could not be imported; the text says what."""


IMPORTS: Final = {
    "the front door": "from liftbridge_aio import Client",
    "and what connecting imports": "import liftbridge_aio._client.parts",
    "grpclib alone": "import grpclib.client",
    "the command line": "import liftbridge_aio.cli",
    "the embedded broker": "import liftbridge_aio.broker",
}

_TIMED: Final = """
import time
began = time.process_time()
{statement}
print(time.process_time() - began)
"""
_TIMEOUT: Final = 60.0


def measure_imports(rounds: int) -> dict[str, Spread]:
    """Seconds of processor time above an empty interpreter, by what is imported; interleaved.

    The first round, which compiles, does not count.

    Raises:
        ImportFailed: Something could not be imported.
    """
    times: dict[str, list[float]] = {name: [] for name in IMPORTS}
    with tempfile.TemporaryDirectory(prefix="benchmarks-") as bytecode:
        for _ in range(rounds + 1):
            for name, statement in IMPORTS.items():
                times[name].append(_seconds(statement, bytecode))
    return {name: Spread.of(seconds[1:]) for name, seconds in times.items()}


def _seconds(statement: str, bytecode: str) -> float:
    kept = {k: v for k, v in environment().items() if k != "PYTHONDONTWRITEBYTECODE"}
    try:
        said = subprocess.run(  # noqa: S603 - no shell, and our own words
            [sys.executable, "-c", _TIMED.format(statement=statement)],
            env=kept | {"PYTHONPYCACHEPREFIX": bytecode},
            capture_output=True,
            check=True,
            text=True,
            timeout=_TIMEOUT,
        )
    except subprocess.SubprocessError as error:
        raise ImportFailed(f"{statement}: {error}") from error
    return float(said.stdout)
