"""Side-by-side measurements of Liftbridge clients: `python -m benchmarks` lists them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
"""The repository."""

# The tests know how to build and run real servers (`servers`). Last, so that nothing is shadowed.
sys.path.append(str(ROOT / "tests"))
