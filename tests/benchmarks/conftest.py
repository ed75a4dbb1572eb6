"""Lets tests import the benchmarks, which are no part of the package that is installed."""

from __future__ import annotations

import sys
from pathlib import Path

# Last, so that the package that is installed is the one that is tested.
sys.path.append(str(Path(__file__).resolve().parents[2]))
