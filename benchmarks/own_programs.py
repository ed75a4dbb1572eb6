"""Programs of this repository, run as processes of their own."""

from __future__ import annotations

import os
import sys

from . import ROOT


def module(name: str) -> tuple[str, ...]:
    """The command that runs a module of this repository, in `environment`."""
    return (sys.executable, "-m", name)


def environment() -> dict[str, str]:
    """The variables of this process, and where Python finds this repository."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    return os.environ | {"PYTHONPATH": path}
