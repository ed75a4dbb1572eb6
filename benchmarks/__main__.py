"""`python -m benchmarks NAME`: measure, show, and write down."""

from __future__ import annotations

import signal
import sys
from types import FrameType

from .command import main


def _end(number: int, _: FrameType | None) -> None:
    """Leave as after Ctrl-C: without clients, servers and their folders."""
    sys.exit(128 + number)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _end)
    sys.exit(main(sys.argv[1:]))
