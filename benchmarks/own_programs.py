"""Programs of this repository, run as processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

from . import ROOT


class ProgramFailed(Exception):
    """A program of ours did not come to its end; the text says why."""


def module(name: str) -> tuple[str, ...]:
    """The command that runs a module of this repository, in `environment`."""
    return (sys.executable, "-m", name)


def environment() -> dict[str, str]:
    """The variables of this process, and where Python finds this repository."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    return os.environ | {"PYTHONPATH": path}


def figures_of(name: str, *words: str, timeout: float) -> dict[str, Any]:
    """The figures that a module prints as JSON.

    Raises:
        ProgramFailed: it did not come to its end in so many seconds.
    """
    try:
        done = subprocess.run(  # noqa: S603 - no shell, and our own words
            [*module(name), *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            env=environment(),
            text=True,
            timeout=timeout,
        )
    except subprocess.TimeoutExpired:
        text = f"{name} {' '.join(words)} was not done within {timeout:.0f} s"
        raise ProgramFailed(text) from None
    if done.returncode:
        raise ProgramFailed(done.stderr[-1000:])
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures
