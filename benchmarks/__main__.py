"""`python -m benchmarks NAME`: measure, show, and write down."""

from __future__ import annotations

import sys

from .command import run

if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
