"""Commands that run until somebody ends them: Ctrl-C and SIGTERM as an event."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Iterator


@contextlib.contextmanager
def stop_signals() -> Iterator[asyncio.Event]:
    """Set an event at SIGINT or SIGTERM, instead of what they do else."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    caught = []
    for number in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(NotImplementedError):  # then Ctrl-C interrupts, as elsewhere
            loop.add_signal_handler(number, stop.set)
            caught.append(number)
    try:
        yield stop
    finally:
        for number in caught:
            loop.remove_signal_handler(number)
