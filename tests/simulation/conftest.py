"""The simulation runs on Python 3.12 or later, as its library does."""

from __future__ import annotations

import sys

IS_POSSIBLE = sys.version_info >= (3, 12)
collect_ignore_glob = [] if IS_POSSIBLE else ["*.py"]


def pytest_report_header() -> list[str]:
    return [] if IS_POSSIBLE else ["simulation: it needs Python 3.12 or later: nox -s simulation"]
