"""The simulation runs on Python 3.12 or later, as its library does."""

from __future__ import annotations

import sys

IS_POSSIBLE = sys.version_info >= (3, 12)
collect_ignore = [] if IS_POSSIBLE else ["test_world.py", "world.py", "load.py", "faults.py"]


def pytest_report_header() -> list[str]:
    return [] if IS_POSSIBLE else ["simulation: it needs Python 3.12 or later: nox -s simulation"]
